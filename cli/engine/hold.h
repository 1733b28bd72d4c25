/* SPDX-License-Identifier: MIT */
/*
 * Batch path: make the driver hold new requests back, while the server still has its own.
 */
#ifndef ENGINE_HOLD_H
#define ENGINE_HOLD_H

/*
 * After it no request comes that the driver has not already passed on: they wait for the next server.
 * cdev is /dev/ublkcN of a device with UBLK_F_BATCH_IO. 0 or -errno (-ETIME: not known to be so).
 *
 * QUIESCE_DEV is no way to do that here: it also makes the driver fail each request that comes before
 * the next server is there (Linux 7.3, batch path only).
 */
int hold_requests(int cdev);

#endif
