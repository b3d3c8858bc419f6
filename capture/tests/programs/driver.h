/* The driver functions that the test programs use: their signatures, as the CUDA driver has them. */
#include <stddef.h>
typedef unsigned long long Ptr;
typedef void *Handle;
#define DRIVER_FUNCTIONS(F) \
    F(cuMemAlloc_v2, (Ptr *p, size_t size), (p, size), 243) \
    F(cuMemFree_v2, (Ptr p), (p), 245) \
    F(cuMemAllocAsync, (Ptr *p, size_t size, Handle stream), (p, size, stream), 598) \
    F(cuMemAllocFromPoolAsync, (Ptr *p, size_t size, Handle pool, Handle stream), (p, size, pool, stream), 611) \
    F(cuMemFreeAsync, (Ptr p, Handle stream), (p, stream), 600) \
    F(cuMemHostAlloc, (void **p, size_t size, unsigned flags), (p, size, flags), 39) \
    F(cuMemFreeHost, (void *p), (p), 38) \
    F(cuMemPoolCreate, (Handle * pool, const void *properties), (pool, properties), 607) \
    F(cuMemPoolDestroy, (Handle pool), (pool), 608) \
    F(cuMemPoolTrimTo, (Handle pool, size_t keep), (pool, keep), 602) \
    F(cuMemAddressReserve, (Ptr * p, size_t size, size_t align, Ptr at, unsigned long long flags), (p, size, align, at, flags), 547) \
    F(cuMemAddressFree, (Ptr p, size_t size), (p, size), 548) \
    F(cuMemCreate, (Ptr * handle, size_t size, const void *properties, unsigned long long flags), (handle, size, properties, flags), 549) \
    F(cuMemRelease, (Ptr handle), (handle), 550) \
    F(cuMemMap, (Ptr p, size_t size, size_t offset, Ptr handle, unsigned long long flags), (p, size, offset, handle, flags), 551) \
    F(cuMemUnmap, (Ptr p, size_t size), (p, size), 552) \
    F(cuStreamSynchronize, (Handle stream), (stream), 126)
