/* SPDX-License-Identifier: MIT */
#ifndef VERSION_H
#define VERSION_H

#define UBLKCTL_VERSION "0.1.0"

#endif
