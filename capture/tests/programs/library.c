/* A library between the program and the driver: memory that it asks for is its own. */
#include "driver.h"
int library_alloc(int (*alloc)(Ptr *, size_t), Ptr *p, size_t size) {
    int answer = alloc(p, size);
    return answer + 0 * (int)size;
}
