/* The words of CUDA in OpenCL C 1.2: what comes before the text of kernels. */
#define __shared__ __local
#define __align__(bytes) __attribute__((aligned(bytes)))
#define __launch_bounds__(threads, ...) __attribute__((reqd_work_group_size(threads, 1, 1)))
#define __syncthreads() barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)

/* A type in OpenCL, a name in CUDA. */
#define half half_

#define threadIdx ((int3)(get_local_id(0), 0, 0))
#define blockIdx ((int3)(get_group_id(0), get_group_id(1), get_group_id(2)))

#define make_float4(x, y, z, w) ((float4)(x, y, z, w))
#define make_int4(x, y, z, w) ((int4)(x, y, z, w))

#define rten_min(a, b) ((a) < (b) ? (a) : (b))
#define rten_max(a, b) ((a) > (b) ? (a) : (b))

#define __float_as_int as_int
#define __int_as_float as_float
#define erff erf
#define expf exp
#define fabsf fabs
#define logf log
#define powf pow
#define sqrtf sqrt
#define tanhf tanh

/* Through local memory: there are no warps. Any two lanes lie in the same block. */
#define LANES __local float lanes[1024]
#define __shfl_xor_sync(mask, value, distance) exchange(lanes, value, distance)
float exchange(__local float *lanes, float value, int distance) {
  const int lane = get_local_id(0);
  __syncthreads();
  lanes[lane] = value;
  __syncthreads();
  return lanes[lane ^ distance];
}
