// Asks the CUDA runtime for memory and counts by itself what it asked for: count MODE [N].
// MODE: plain (one stream, all kinds of memory), pools (two streams, pools), endless (never ends), time (what a call costs).
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <random>
#include <thread>
#include <vector>

static unsigned long long granted, frees, bytes, live, peak;

static void need(cudaError_t answer, const char *what) {
    if (answer != cudaSuccess) {
        std::fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(answer));
        std::exit(9);
    }
}

struct Block {
    void *at;
    size_t size;
    int stream;
};

static void took(size_t size) {
    granted++;
    bytes += size;
    live += size;
    if (live > peak) peak = live;
}

static void gave(size_t size) {
    frees++;
    live -= size;
}

static void plain(int n) {
    std::mt19937_64 random(1);
    std::vector<Block> blocks;
    for (int i = 0; i < n; i++) {
        if (!blocks.empty() && random() % 2) {
            size_t which = random() % blocks.size();
            need(cudaFree(blocks[which].at), "cudaFree");
            gave(blocks[which].size);
            blocks[which] = blocks.back();
            blocks.pop_back();
        } else {
            size_t size = 1 + random() % (8 << 20);
            void *at;
            bool managed = random() % 8 == 0;
            need(managed ? cudaMallocManaged(&at, size) : cudaMalloc(&at, size), "cudaMalloc");
            took(size);
            blocks.push_back({at, size, 0});
        }
    }
    void *host;
    need(cudaMallocHost(&host, 1 << 20), "cudaMallocHost");
    need(cudaFreeHost(host), "cudaFreeHost");
}

static void pools(int n, bool endless) {
    std::mt19937_64 random(2);
    cudaStream_t streams[2];
    for (auto &stream : streams) need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    cudaMemPoolProps properties = {};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    cudaMemPool_t pool;
    need(cudaMemPoolCreate(&pool, &properties), "pool");
    std::vector<Block> blocks;
    for (int i = 0; i < n || endless; i++) {
        if (blocks.size() > 64 || (!blocks.empty() && random() % 2)) {
            size_t which = random() % blocks.size();
            need(cudaFreeAsync(blocks[which].at, streams[blocks[which].stream]), "cudaFreeAsync");
            gave(blocks[which].size);
            blocks[which] = blocks.back();
            blocks.pop_back();
        } else {
            size_t size = 1 + random() % (4 << 20);
            int stream = (int)(random() % 2);
            void *at;
            need(stream ? cudaMallocFromPoolAsync(&at, size, pool, streams[1]) : cudaMallocAsync(&at, size, streams[0]), "cudaMallocAsync");
            took(size);
            blocks.push_back({at, size, stream});
        }
        if (endless && i == n) {
            // All before this line is counted; what follows is not.
            std::printf("{\"granted\": %llu, \"frees\": %llu, \"bytes\": %llu, \"peak\": %llu}\n", granted, frees, bytes, peak);
            std::fflush(stdout);
            for (;;) {
                need(cudaStreamSynchronize(streams[0]), "sync");
                std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
        }
    }
    for (auto &block : blocks) {
        need(cudaFreeAsync(block.at, streams[block.stream]), "cudaFreeAsync");
        gave(block.size);
    }
    need(cudaDeviceSynchronize(), "sync");
    need(cudaMemPoolTrimTo(pool, 0), "trim");
    need(cudaMemPoolDestroy(pool), "destroy");
}

// Nanoseconds for a malloc and a free together: the least of 20 rounds' means.
template <class Pair> static double pair_cost(int n, Pair pair) {
    double least = 1e18;
    for (int round = 0; round < 20; round++) {
        auto start = std::chrono::steady_clock::now();
        for (int i = 0; i < n; i++) pair();
        std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - start;
        if (took.count() / n < least) least = took.count() / n;
    }
    return least;
}

static void times(int n) {
    cudaStream_t stream;
    need(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "stream");
    void *keep, *at;
    need(cudaMallocAsync(&keep, 1 << 20, stream), "cudaMallocAsync");
    double hits = pair_cost(n, [&] {
        cudaMallocAsync(&at, 4096, stream);
        cudaFreeAsync(at, stream);
    });
    need(cudaDeviceSynchronize(), "sync");
    double whole = pair_cost(n / 20, [&] {
        cudaMalloc(&at, 4096);
        cudaFree(at);
    });
    std::printf("{\"async_pair_ns\": %.1f, \"malloc_pair_ns\": %.1f}\n", hits, whole);
}

int main(int argc, char **argv) {
    const char *mode = argc > 1 ? argv[1] : "plain";
    int n = argc > 2 ? std::atoi(argv[2]) : 4000;
    if (!std::strcmp(mode, "time")) {
        times(n);
        return 0;
    }
    if (!std::strcmp(mode, "plain")) plain(n);
    else pools(n, !std::strcmp(mode, "endless"));
    std::printf("{\"granted\": %llu, \"frees\": %llu, \"bytes\": %llu, \"peak\": %llu}\n", granted, frees, bytes, peak);
    return 3;
}
