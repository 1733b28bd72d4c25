/* SPDX-License-Identifier: MIT */
#include "target/target.h"

#include <string.h>

#include "util/cleanup.h"

static const struct tgt_ops *const targets[] = {
	&tgt_null,
	&tgt_file,
};

const struct tgt_ops *tgt_at(unsigned int n)
{
	return n < ARRAY_SIZE(targets) ? targets[n] : NULL;
}

/* Names first, then aliases. */
const char *tgt_name_at(unsigned int n)
{
	unsigned int k = ARRAY_SIZE(targets);

	if (n < k)
		return targets[n]->name;
	for (unsigned int i = 0; i < ARRAY_SIZE(targets); i++)
		if (targets[i]->alias && n == k++)
			return targets[i]->alias;
	return NULL;
}

const struct tgt_ops *tgt_find(const char *name)
{
	for (unsigned int i = 0; i < ARRAY_SIZE(targets); i++)
		if (!strcmp(targets[i]->name, name) ||
		    (targets[i]->alias && !strcmp(targets[i]->alias, name)))
			return targets[i];
	return NULL;
}
