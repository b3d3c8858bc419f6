/* Asks the driver for memory and says what it asked for: program WAY END.
   WAY: linked, dlsym or lookup: how it reaches the driver. END: what becomes of it. */
#define _GNU_SOURCE
#include "driver.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define THREADS 8
#define ROUNDS 20000
int cuInit(unsigned);
int cuGetProcAddress_v2(const char *, void **, int, uint64_t, int *);
int library_alloc(int (*)(Ptr *, size_t), Ptr *, size_t);

#define POINTER(name, params, args, cbid) static int(*p_##name) params;
DRIVER_FUNCTIONS(POINTER)
#define DECLARE(name, params, args, cbid) int name params;
DRIVER_FUNCTIONS(DECLARE)

static void *need(void *found, const char *name) {
    if (!found) { fprintf(stderr, "no %s\n", name); exit(9); }
    return found;
}
static void reach(const char *way) {
    if (!strcmp(way, "linked")) {
#define LINKED(name, params, args, cbid) p_##name = name;
        DRIVER_FUNCTIONS(LINKED)
        cuInit(0);
        return;
    }
    void *driver = need(dlopen("libcuda.so.1", RTLD_NOW), "driver");
    ((int (*)(unsigned))need(dlsym(driver, "cuInit"), "cuInit"))(0);
    if (!strcmp(way, "dlsym")) {
#define FOUND(name, params, args, cbid) p_##name = need(dlsym(driver, #name), #name);
        DRIVER_FUNCTIONS(FOUND)
        return;
    }
    int (*look_up)(const char *, void **, int, uint64_t, int *) = need(dlsym(driver, "cuGetProcAddress_v2"), "lookup");
    void *again = NULL;
    look_up("cuGetProcAddress", &again, 12000, 0, NULL);
    look_up = need(again, "lookup");
#define ASKED(name, params, args, cbid) { char base[64]; strcpy(base, #name); char *v = strstr(base, "_v2"); if (v) *v = 0; \
        void *f = NULL; look_up(base, &f, 12000, 0, NULL); p_##name = need(f, base); }
    DRIVER_FUNCTIONS(ASKED)
}

static unsigned long long granted, frees, bytes, refused;
static void granted_now(size_t size) { granted++; bytes += size; }

static void *round_trips(void *arg) {
    for (int n = 0; n < ROUNDS; n++) {
        Ptr p;
        p_cuMemAlloc_v2(&p, 512 + (uintptr_t)arg);
        p_cuMemFree_v2(p);
    }
    return NULL;
}

static void all_kinds(void) {
    Ptr a, b, c, d, never;
    Handle pool, streams[2] = {(Handle)0x1100, (Handle)0x2200};
    uint32_t on_device[64] = {1, 0, 1, 0};
    void *host;
    p_cuMemAlloc_v2(&a, 1000); granted_now(1000);
    library_alloc(p_cuMemAlloc_v2, &b, 3000); granted_now(3000);
    if (p_cuMemAlloc_v2(&never, 1ull << 50) == 2) refused++;
    p_cuMemFree_v2(a); frees++;
    p_cuMemPoolCreate(&pool, on_device);
    p_cuMemAllocFromPoolAsync(&c, 4096, pool, streams[0]); granted_now(4096);
    p_cuMemAllocAsync(&d, 8192, streams[1]); granted_now(8192);
    p_cuMemFreeAsync(c, streams[0]); frees++;
    p_cuStreamSynchronize(streams[0]);
    p_cuMemFreeAsync(d, streams[1]); frees++;
    p_cuMemPoolTrimTo(pool, 0);
    p_cuMemPoolDestroy(pool);
    p_cuMemHostAlloc(&host, 1 << 20, 0);
    p_cuMemFreeHost(host);
    Ptr range, handle;
    p_cuMemAddressReserve(&range, 4 << 20, 0, 0, 0);
    p_cuMemCreate(&handle, 2 << 20, on_device, 0); granted_now(2 << 20);
    p_cuMemMap(range, 2 << 20, 0, handle, 0);
    p_cuMemRelease(handle);
    p_cuMemUnmap(range, 2 << 20); frees++;
    p_cuMemAddressFree(range, 4 << 20);
}

int main(int argc, char **argv) {
    reach(argv[1]);
    const char *end = argv[2];
    if (!strcmp(end, "threads")) {
        pthread_t threads[THREADS];
        for (uintptr_t n = 0; n < THREADS; n++) pthread_create(&threads[n], NULL, round_trips, (void *)n);
        for (int n = 0; n < THREADS; n++) pthread_join(threads[n], NULL);
        for (int n = 0; n < THREADS; n++) { granted += ROUNDS; frees += ROUNDS; bytes += (unsigned long long)ROUNDS * (512 + n); }
    } else if (!strcmp(end, "layers")) {
        for (int n = 0; n < 1000; n++) {
            Ptr a, b;
            p_cuMemAlloc_v2(&a, 1000); granted_now(1000);
            library_alloc(p_cuMemAlloc_v2, &b, 3000); granted_now(3000);
        }
    } else {
        all_kinds();
    }
    printf("granted %llu frees %llu bytes %llu refused %llu\n", granted, frees, bytes, refused);
    fflush(stdout);
    if (!strcmp(end, "abort")) abort();
    if (!strcmp(end, "kill")) kill(getpid(), SIGKILL);
    if (!strcmp(end, "fork")) {
        pid_t child = fork();
        all_kinds();
        if (!child) { _exit(5); }
        int status;
        waitpid(child, &status, 0);
        return WEXITSTATUS(status);
    }
    return 7;
}
