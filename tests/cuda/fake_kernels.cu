struct rten_cuda_failure_t {
  int claimed, kind, node;
  long long value;
};
__device__ rten_cuda_failure_t rten_cuda_failure;

__device__ __forceinline__ int rten_aot_fail(int kind, int node, long long value) {
  if (atomicCAS(&rten_cuda_failure.claimed, 0, 1) == 0) {
    rten_cuda_failure.kind = kind;
    rten_cuda_failure.node = node;
    rten_cuda_failure.value = value;
  }
  return 0;
}

extern "C" __global__ void __launch_bounds__(128)
    add(const float *__restrict__ x, const float *__restrict__ w, float *__restrict__ y,
        long long n) {
  long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n * 4) y[i] = x[i] + w[i % 4];
}

// A row a warp: one of its lanes holds the sum.
extern "C" __global__ void __launch_bounds__(64)
    row_sums(const float *__restrict__ y, float *__restrict__ sums, long long n) {
  __shared__ float parts[2];
  int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  long long row = (long long)blockIdx.x * 2 + warp;
  float value = row < n && lane < 4 ? y[row * 4 + lane] : 0.0f;
  for (int by = 16; by > 0; by /= 2) value += __shfl_xor_sync(0xffffffffu, value, by);
  if (lane == 0) parts[warp] = value;
  __syncthreads();
  row = (long long)blockIdx.x * 2 + threadIdx.x;
  if (threadIdx.x < 2 && row < n) sums[row] = parts[threadIdx.x];
}

extern "C" __global__ void pick(const float *__restrict__ y, const int *__restrict__ index,
                                float *__restrict__ picked, long long n) {
  long long row = index[blockIdx.x];
  if (row < -n || row >= n) {
    if (threadIdx.x == 0) rten_aot_fail(1, 0, row);
    return;
  }
  picked[blockIdx.x * 4 + threadIdx.x] = y[(row < 0 ? row + n : row) * 4 + threadIdx.x];
}

extern "C" __global__ void count_rows(const float *__restrict__ sums, long long *__restrict__ count,
                                      long long n) {
  extern __shared__ int positive[];
  for (long long i = threadIdx.x; i < n; i += blockDim.x) positive[i] = sums[i] > 0.0f;
  __syncthreads();
  if (threadIdx.x == 0) {
    *count = 0;
    for (long long i = 0; i < n; ++i) *count += positive[i];
  }
}

extern "C" __global__ void keep_rows(const float *__restrict__ y, const float *__restrict__ sums,
                                     float *__restrict__ kept, long long n) {
  long long next = 0;
  for (long long i = 0; i < n; ++i) {
    if (sums[i] <= 0.0f) continue;
    kept[next * 4 + threadIdx.x] = y[i * 4 + threadIdx.x];
    next += 1;
  }
}

extern "C" __global__ void stray(float *x, long long by) { x[by] = 1.0f; }

extern "C" __global__ void diverge() {
  if (threadIdx.x < 3) {
    __syncthreads();
  }
}

extern "C" __global__ void misalign(float *x) { *(float4 *)(x + 1) = make_float4(1, 2, 3, 4); }
