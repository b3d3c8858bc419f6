/* A driver without a device, under the CUDA driver's name and with its interface: it hands out addresses, loads the
   library of CUDA_INJECTION64_PATH when it starts, gives its functions out by name, and lets a profiler see its calls. */
#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define MEMORY (1ull << 40)
#define ADDRESSES 65536
void (*profiler)(int site, unsigned cbid, const char *name, const void *arguments, const void *answer, uint64_t *between);

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
/* The address freed last is given out first: an order mistake of a log would show. */
static Ptr freed[ADDRESSES];
static int freed_count;
static Ptr next = 0x7f0000000000ull;

static int take(Ptr *p, size_t size) {
    if (size > MEMORY) return 2;
    pthread_mutex_lock(&lock);
    *p = freed_count ? freed[--freed_count] : (next += 1ull << 21);
    pthread_mutex_unlock(&lock);
    return 0;
}
static int give(Ptr p) {
    pthread_mutex_lock(&lock);
    if (freed_count < ADDRESSES) freed[freed_count++] = p;
    pthread_mutex_unlock(&lock);
    return 0;
}
static int fresh(Ptr *p) {
    pthread_mutex_lock(&lock);
    *p = (next += 1ull << 33);
    pthread_mutex_unlock(&lock);
    return 0;
}

#define BODY(name, params) static int body_##name params
BODY(cuMemAlloc_v2, (Ptr *p, size_t size)) { return take(p, size); }
BODY(cuMemFree_v2, (Ptr p)) { return give(p); }
BODY(cuMemAllocAsync, (Ptr *p, size_t size, Handle s)) { return take(p, size); }
BODY(cuMemAllocFromPoolAsync, (Ptr *p, size_t size, Handle pool, Handle s)) { return take(p, size); }
BODY(cuMemFreeAsync, (Ptr p, Handle s)) { return give(p); }
BODY(cuMemHostAlloc, (void **p, size_t size, unsigned flags)) { return (*p = malloc(size)) ? 0 : 2; }
BODY(cuMemFreeHost, (void *p)) { free(p); return 0; }
BODY(cuMemPoolCreate, (Handle * pool, const void *properties)) { return fresh((Ptr *)pool); }
BODY(cuMemPoolDestroy, (Handle pool)) { return 0; }
BODY(cuMemPoolTrimTo, (Handle pool, size_t keep)) { return 0; }
BODY(cuMemAddressReserve, (Ptr * p, size_t size, size_t align, Ptr at, unsigned long long flags)) { return fresh(p); }
BODY(cuMemAddressFree, (Ptr p, size_t size)) { return 0; }
BODY(cuMemCreate, (Ptr * h, size_t size, const void *properties, unsigned long long flags)) { return size > MEMORY ? 2 : fresh(h); }
BODY(cuMemRelease, (Ptr h)) { return 0; }
BODY(cuMemMap, (Ptr p, size_t size, size_t offset, Ptr h, unsigned long long flags)) { return 0; }
BODY(cuMemUnmap, (Ptr p, size_t size)) { return 0; }
BODY(cuStreamSynchronize, (Handle s)) { return 0; }

/* Arguments as a struct: what a profiler gets. Every argument of these takes a place of eight bytes. */
static uint64_t word(uint64_t value) { return value; }
#define WORD(x) word((uint64_t)(x))
#define WORDS_1(a) {WORD(a)}
#define WORDS_2(a, b) {WORD(a), WORD(b)}
#define WORDS_3(a, b, c) {WORD(a), WORD(b), WORD(c)}
#define WORDS_4(a, b, c, d) {WORD(a), WORD(b), WORD(c), WORD(d)}
#define WORDS_5(a, b, c, d, e) {WORD(a), WORD(b), WORD(c), WORD(d), WORD(e)}
#define PICK(_1, _2, _3, _4, _5, NAME, ...) NAME
#define WORDS(...) PICK(__VA_ARGS__, WORDS_5, WORDS_4, WORDS_3, WORDS_2, WORDS_1)(__VA_ARGS__)
#define STRIP(...) __VA_ARGS__
#define DEFINE(name, params, args, cbid) \
    int name params { \
        uint64_t words[] = WORDS args; \
        uint64_t between = 0; \
        int answer = 0; \
        if (profiler) profiler(0, cbid, #name, words, NULL, &between); \
        answer = body_##name args; \
        if (profiler) profiler(1, cbid, #name, words, &answer, &between); \
        return answer; \
    }
DRIVER_FUNCTIONS(DEFINE)

int cuInit(unsigned flags) {
    static int started;
    if (started++) return 0;
    const char *path = getenv("CUDA_INJECTION64_PATH");
    void *library = path ? dlopen(path, RTLD_NOW) : NULL;
    int (*start)(void) = library ? (int (*)(void))dlsym(library, "InitializeInjection") : NULL;
    if (start) start();
    return 0;
}
int cuCtxGetDevice(int *device) { *device = 0; return 0; }
int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags, int *status) {
    static const struct { const char *name; void *function; } all[] = {
#define ROW(name, params, args, cbid) {#name, (void *)name},
        DRIVER_FUNCTIONS(ROW){"cuInit", (void *)cuInit}, {"cuCtxGetDevice", (void *)cuCtxGetDevice},
        {"cuGetProcAddress_v2", (void *)cuGetProcAddress_v2}};
    size_t length = strlen(symbol);
    for (size_t n = 0; n < sizeof all / sizeof *all; n++)
        if (!strncmp(all[n].name, symbol, length) && (!all[n].name[length] || !strcmp(all[n].name + length, "_v2"))) {
            *function = all[n].function;
            return 0;
        }
    *function = NULL;
    return 500;
}
