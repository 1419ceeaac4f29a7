// Sixteen numbers at once, and the few functions of them that a pass needs.
//
// The compiler is told to round every product and every sum by itself (-ffp-contract=off); where the two are to be one
// rounding, `fused` says so. So which sums are fused hangs on this source, not on the shape of a loop.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>
#if defined(__AVX512F__) || (defined(__AVX2__) && defined(__FMA__))
#include <immintrin.h>
#endif
#include <omp.h>

namespace {

typedef float V __attribute__((vector_size(64)));
typedef int32_t I __attribute__((vector_size(64)));
typedef uint32_t U __attribute__((vector_size(64)));

constexpr int LANES = 16;

template <class T> inline T load(const void* p) {
  T v;
  memcpy(&v, p, sizeof v);
  return v;
}
inline void store(void* p, V v) { memcpy(p, &v, sizeof v); }
inline V splat(float x) { return x - V{}; }  // which needs no subtraction, where a sum would
inline float as_float(uint32_t x) { return load<float>(&x); }

// a * b + c: rounded once where the processor has that, else twice
inline V fused(V a, V b, V c) {
#if defined(__AVX512F__)
  return (V)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__AVX2__) && defined(__FMA__)
  struct Halves { __m256 low, high; } x, y, z;
  memcpy(&x, &a, sizeof x), memcpy(&y, &b, sizeof y), memcpy(&z, &c, sizeof z);
  z.low = _mm256_fmadd_ps(x.low, y.low, z.low), z.high = _mm256_fmadd_ps(x.high, y.high, z.high);
  memcpy(&c, &z, sizeof c);
  return c;
#else
  return a * b + c;
#endif
}

inline float total(V v) {  // a tree, the same for everyone
  float a[LANES];
  store(a, v);
  for (int width = LANES / 2; width; width /= 2)
    for (int i = 0; i < width; i++) a[i] += a[i + width];
  return a[0];
}
inline float largest(V v) {
  float a[LANES], best;
  store(a, v);
  best = a[0];
  for (int i = 1; i < LANES; i++) best = a[i] > best ? a[i] : best;
  return best;
}
inline V exponential(V x) {  // Cephes; relative error below 2e-7
  x = x < splat(-87.0f) ? splat(-87.0f) : x;
  x = x > splat(88.0f) ? splat(88.0f) : x;
  const V n = fused(x, splat(1.44269504f), splat(12582912.0f)) - 12582912.0f;
  const V r = fused(n, splat(2.12194440e-4f), fused(n, splat(-0.693359375f), x));
  V y = splat(1.9875691500e-4f);
  for (float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    y = fused(y, r, splat(c));
  y = fused(y * r, r, r) + 1.0f;
  I scale = (__builtin_convertvector(n, I) + 127) << 23;
  return y * (V)scale;
}
inline float sum_of_exponentials(const float* x, int count, float top) {
  V sums = {};
  for (int i = 0; i < count; i += LANES) {
    V v = splat(-INFINITY);
    memcpy(&v, x + i, size_t(std::min(LANES, count - i)) * sizeof(float));
    v = v == splat(-INFINITY) ? V{} : exponential(v - top);
    sums += v;
  }
  return total(sums);
}
inline V hyperbolic_tangent(V x) { return 1.0f - 2.0f / (exponential(2.0f * x) + 1.0f); }

inline uint16_t to_bfloat16(float x) {
  uint32_t u = load<uint32_t>(&x);
  if ((u & 0x7fffffff) > 0x7f800000) return uint16_t(u >> 16) | 64;
  return uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

}  // namespace
