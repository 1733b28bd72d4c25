/* SPDX-License-Identifier: MIT */
#include "target/target.h"

#include <string.h>

#include "util/cleanup.h"

static const struct tgt_ops *const targets[] = {
	&tgt_null,
};

const struct tgt_ops *tgt_at(unsigned int n)
{
	return n < ARRAY_SIZE(targets) ? targets[n] : NULL;
}

const char *tgt_name_at(unsigned int n)
{
	return n < ARRAY_SIZE(targets) ? targets[n]->name : NULL;
}

const struct tgt_ops *tgt_find(const char *name)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(targets); i++)
		if (!strcmp(targets[i]->name, name))
			return targets[i];
	return NULL;
}
