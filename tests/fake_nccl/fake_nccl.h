/* fake_nccl.h - a libnccl.so.2 that stands in beside the driver that does (fake_cuda.h): the functions that lode
 * asks for.  An exchange happens on the streams, when all ranks have come to it, as late as it may. */
#ifndef LODE_TESTS_FAKE_NCCL_H
#define LODE_TESTS_FAKE_NCCL_H

/* How often devices were connected. */
unsigned fake_nccl_connections(void);

#endif
