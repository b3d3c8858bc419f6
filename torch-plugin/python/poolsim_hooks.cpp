// Hands poolsim's record_stream and empty_cache to the current CUDAPluggableAllocator, which Python cannot do.

#include <torch/csrc/cuda/CUDAPluggableAllocator.h>

using Allocator = torch::cuda::CUDAPluggableAllocator::CUDAPluggableAllocator;

// Returns 0, or 1 if no pluggable allocator is in use.
extern "C" int poolsim_install_hooks(void* record_stream, void* empty_cache) {
  auto current = torch::cuda::CUDAPluggableAllocator::getCurrentAllocator();
  auto* allocator = dynamic_cast<Allocator*>(current.get());
  if (allocator == nullptr) {
    return 1;
  }
  auto record = reinterpret_cast<void (*)(void*, void*)>(record_stream);
  auto empty = reinterpret_cast<void (*)()>(empty_cache);
  allocator->set_record_stream_fn(
      [record](void* ptr, cudaStream_t stream) { record(ptr, static_cast<void*>(stream)); });
  allocator->set_reset_fn([empty]() { empty(); });
  return 0;
}
