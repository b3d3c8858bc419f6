/* Callbacks with CUPTI's interface, over the driver of driver.c. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

typedef struct {
    int site;
    const char *function;
    const void *arguments;
    const void *answer;
    const char *symbol;
    void *context;
    uint32_t context_uid;
    uint64_t *between;
    uint32_t correlation;
} Data;
typedef void (*Callback)(void *, int, uint32_t, const Data *);
static Callback subscriber;
static unsigned char enabled[2048];

int cuptiGetVersion(uint32_t *version) {
    const char *asked = getenv("TEST_CUPTI_VERSION");
    *version = asked ? (uint32_t)atoi(asked) : 28;
    return 0;
}
static void seen(int site, unsigned cbid, const char *name, const void *arguments, const void *answer, uint64_t *between) {
    static uint32_t calls;
    Data data = {site, name, arguments, answer, NULL, (void *)0x5500, 1, between, ++calls};
    if (cbid < sizeof enabled && enabled[cbid]) subscriber(NULL, 1, cbid, &data);
}
int cuptiSubscribe(void **handle, Callback callback, void *data) {
    if (getenv("TEST_CUPTI_TAKEN")) return 39;
    *handle = &subscriber;
    subscriber = callback;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    *(void **)dlsym(driver, "profiler") = (void *)seen;
    return 0;
}
int cuptiUnsubscribe(void *handle) { return 0; }
int cuptiEnableCallback(uint32_t on, void *handle, int domain, uint32_t cbid) {
    if (domain != 1 || cbid >= sizeof enabled) return 1;
    enabled[cbid] = (unsigned char)on;
    return 0;
}
