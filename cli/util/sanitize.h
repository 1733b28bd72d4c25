/* SPDX-License-Identifier: MIT */
/*
 * Is this a build with address or thread sanitizer? They map terabytes of shadow memory, and want the
 * signals of a crash for themselves.
 */
#ifndef UTIL_SANITIZE_H
#define UTIL_SANITIZE_H

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define HAS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HAS_SANITIZER 1
#endif
#endif
#ifndef HAS_SANITIZER
#define HAS_SANITIZER 0
#endif

#endif
