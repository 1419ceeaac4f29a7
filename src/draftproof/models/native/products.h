// Products: out[row][16 panel + lane] = sum over steps, for up to 12 rows and 4 panels at once.
#pragma once

#include "contract.h"
#include "vectors.h"

namespace {

enum Kind : int32_t { FLOAT32 = 0, BFLOAT16 = 1, INT8 = 2, INT4 = 3 };
inline int bytes_of(int kind) { return kind == FLOAT32 ? 4 : kind == BFLOAT16 ? 2 : 1; }

struct Float32 {
  typedef V Sum;
  static inline V add(V sum, const char* w, uint32_t x) { return fused(load<V>(w), splat(as_float(x)), sum); }
};
struct Bfloat16 {
  typedef V Sum;
#if defined(__AVX512BF16__)
  static inline V add(V sum, const char* w, uint32_t x) {
    return (V)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_loadu_si512(w), (__m512bh)_mm512_set1_epi32(int(x)));
  }
#else
  static inline V add(V sum, const char* w, uint32_t x) {
    U both = load<U>(w);
    sum = fused((V)(both << 16), splat(as_float(x << 16)), sum);
    return fused((V)(both & 0xffff0000u), splat(as_float(x & 0xffff0000u)), sum);
  }
#endif
};
struct Int8 {  // inputs are unsigned (128 added), weights signed; sums of products are exact
  typedef I Sum;
#if defined(__AVX512VNNI__)
  static inline I add(I sum, const char* w, uint32_t x) {
    return (I)_mm512_dpbusd_epi32((__m512i)sum, _mm512_set1_epi32(int(x)), _mm512_loadu_si512(w));
  }
#else
  static inline I add(I sum, const char* w, uint32_t x) {
    I four = load<I>(w);
    for (int byte = 0; byte < 4; byte++)
      sum = sum + ((four << (24 - 8 * byte)) >> 24) * int32_t((x >> (8 * byte)) & 255);
    return sum;
  }
#endif
};

inline I dot4(I sum, I weights, uint32_t x) {  // four unsigned bytes in each lane, times the four signed bytes of x
#if defined(__AVX512VNNI__)
  return (I)_mm512_dpbusd_epi32((__m512i)sum, (__m512i)weights, _mm512_set1_epi32(int(x)));
#else
  for (int byte = 0; byte < 4; byte++)
    sum = sum + ((weights >> (8 * byte)) & 255) * int32_t(int8_t(x >> (8 * byte)));
  return sum;
#endif
}
inline V widened(const char* bfloat16) {
  typedef uint16_t H __attribute__((vector_size(32)));
  return (V)(__builtin_convertvector(load<H>(bfloat16), U) << 16);
}
constexpr int BLOCK4 = 8 * 64 + 2 * 32;  // bytes of 64 inputs for 16 rows, with their scales

constexpr int MAX_ROWS = 12, MAX_ROWS4 = 6, MAX_PANELS = 4;  // of one tile
constexpr int AHEAD = 256;  // bytes fetched before they are needed

template <class K, int ROWS, int PANELS>
void tile(const char* w, size_t panel, int steps, const uint32_t* x, size_t stride, void* out, bool more) {
  typename K::Sum sum[PANELS][ROWS] = {};
  if (more) memcpy(sum, out, sizeof sum);
  for (int s = 0; s < steps; s++) {
    for (int p = 0; p < PANELS; p++) __builtin_prefetch(w + p * panel + s * size_t(64) + AHEAD);
    for (int r = 0; r < ROWS; r++)
      for (int p = 0; p < PANELS; p++) sum[p][r] = K::add(sum[p][r], w + p * panel + s * size_t(64), x[r * stride + s]);
  }
  memcpy(out, sum, sizeof sum);
}

// Four bits: sums of whole numbers over a group of 32 inputs, then one multiplication by the group's scale.
template <int ROWS, int PANELS>
void tile4(const char* w, size_t panel, int steps, const uint32_t* x, size_t stride, void* out, bool) {
  V sum[PANELS][ROWS] = {};
  for (int block = 0; block < steps / 16; block++) {
    const char* at = w + block * size_t(BLOCK4);
    for (int half = 0; half < 2; half++) {
      I part[PANELS][ROWS];
      for (int r = 0; r < ROWS; r++)  // weights have 8 added, so that they are unsigned: this takes it off again
        for (int p = 0; p < PANELS; p++) part[p][r] = I{} + int32_t(x[r * stride + steps + 2 * block + half]);
      for (int s = 0; s < 4; s++) {
        I low[PANELS], high[PANELS];
        for (int p = 0; p < PANELS; p++) {
          const char* from = at + p * panel + (4 * half + s) * 64;
          __builtin_prefetch(from + AHEAD);
          const I both = load<I>(from);
          low[p] = both & 0x0f0f0f0f, high[p] = (both >> 4) & 0x0f0f0f0f;
        }
        for (int r = 0; r < ROWS; r++) {
          const uint32_t* step = x + r * stride + 16 * block + 8 * half + 2 * s;
          for (int p = 0; p < PANELS; p++) part[p][r] = dot4(part[p][r], low[p], step[0]);
          for (int p = 0; p < PANELS; p++) part[p][r] = dot4(part[p][r], high[p], step[1]);
        }
      }
      for (int p = 0; p < PANELS; p++) {
        const V scale = widened(at + p * panel + 512 + 32 * half);
        for (int r = 0; r < ROWS; r++) sum[p][r] = fused(__builtin_convertvector(part[p][r], V), scale, sum[p][r]);
      }
    }
  }
  memcpy(out, sum, sizeof sum);
}

// weights, the bytes from one panel to the next, steps, rows, the steps from one row to the next, where the sums go, and
// whether they go on from what is there
typedef void (*Tile)(const char*, size_t, int, const uint32_t*, size_t, void*, bool);
template <class K, int R> constexpr void fill(Tile (&t)[MAX_ROWS + 1][MAX_PANELS + 1]) {
  t[R][1] = tile<K, R, 1>;
  t[R][2] = tile<K, R, 2>;
  if constexpr (R <= 9) t[R][3] = tile<K, R, 3>;
  if constexpr (R <= 6) t[R][4] = tile<K, R, 4>;
  if constexpr (R > 1) fill<K, R - 1>(t);
}
template <int R> constexpr void fill4(Tile (&t)[MAX_ROWS + 1][MAX_PANELS + 1]) {
  t[R][1] = tile4<R, 1>;
  t[R][2] = tile4<R, 2>;
  if constexpr (R <= 3) t[R][3] = tile4<R, 3>, t[R][4] = tile4<R, 4>;
  if constexpr (R > 1) fill4<R - 1>(t);
}
struct Tiles {
  Tile of[4][MAX_ROWS + 1][MAX_PANELS + 1] = {};
  Tiles() {
    fill<Float32, MAX_ROWS>(of[FLOAT32]);
    fill<Bfloat16, MAX_ROWS>(of[BFLOAT16]);
    fill<Int8, MAX_ROWS>(of[INT8]);
    fill4<MAX_ROWS4>(of[INT4]);
  }
};
const Tiles TILES;
inline int panels_at_once(int kind, int rows) {
  if (kind == INT4) return rows <= 3 ? 4 : 2;
  return rows <= 6 ? 4 : rows <= 9 ? 3 : 2;
}

// The rows that a product takes: `stride` 4-byte steps each. For int8 and int4 there is a scale each, and for int4 what
// stands for zero, and behind a row -8 times the sum of each of its groups.
struct Inputs {
  std::vector<uint32_t> data;
  std::vector<float> scale, zero;
  size_t stride = 0;
  void make(size_t rows, size_t steps) {
    stride = steps + steps / 8 + 16;  // rows must not lie a power of two apart
    data.resize(rows * stride);
    scale.resize(rows);
    zero.resize(rows);
  }
  const uint32_t* row(size_t r) const { return data.data() + r * stride; }
  void put(int kind, size_t r, const float* x, int count) {
    uint32_t* to = data.data() + r * stride;
    if (kind == FLOAT32) {
      memcpy(to, x, count * sizeof(float));
    } else if (kind == BFLOAT16) {
      uint16_t* h = reinterpret_cast<uint16_t*>(to);
      for (int i = 0; i < count; i++) h[i] = to_bfloat16(x[i]);
    } else if (kind == INT4) {
      float low = 0, high = 0;  // scale, zero and rounding are torchao's
      for (int i = 0; i < count; i++) low = std::min(low, x[i]), high = std::max(high, x[i]);
      scale[r] = std::max((high - low) / 255.0f, 1.1920929e-7f);
      zero[r] = std::min(127.0f, -128.0f - std::nearbyint(low / scale[r]));
      const float inverse = 1.0f / scale[r];
      int8_t* b = reinterpret_cast<int8_t*>(to);
      for (int i = 0; i < count; i++)
        b[i] = int8_t(std::max(-128.0f, std::min(127.0f, std::nearbyint(x[i] * inverse) + zero[r])));
      for (int group = 0; group < count / 32; group++) {
        int32_t sum = 0;
        for (int i = 0; i < 32; i++) sum += b[32 * group + i];
        to[count / 4 + group] = uint32_t(-8 * sum);
      }
    } else {
      float most = 0;  // scale and rounding are torchao's
      for (int i = 0; i < count; i++) most = std::max(most, std::fabs(x[i]));
      scale[r] = std::max(most / 127.5f, 1.1920929e-7f);
      const float inverse = 1.0f / scale[r];
      uint8_t* b = reinterpret_cast<uint8_t*>(to);
      for (int i = 0; i < count; i++) b[i] = uint8_t(std::min(127.0f, std::nearbyint(x[i] * inverse)) + 128.0f);
    }
  }
};

// Call from inside a parallel region. `each(panel, row, V)` gets the finished sums; `unit` panels always come together.
template <class Each> void multiply(const Matrix& a, const Inputs& in, int n, int unit, Each each) {
  const int panels = a.rows / LANES, units = panels / unit;
  const size_t panel_bytes = a.kind == INT4 ? size_t(a.steps) / 16 * BLOCK4 : size_t(a.steps) * 64;
  const int most = a.kind == INT4 ? MAX_ROWS4 : MAX_ROWS, blocks = (n + most - 1) / most;
  const int block = (n + blocks - 1) / blocks;
  const int at_once = panels_at_once(a.kind, block) / unit * unit;
  const int tasks = std::max(1, std::min(units, omp_get_num_threads() * 8));
#pragma omp for schedule(dynamic, 1)
  for (int task = 0; task < tasks; task++) {
    const int from = int(int64_t(units) * task / tasks) * unit, to = int(int64_t(units) * (task + 1) / tasks) * unit;
    for (int p = from; p < to;) {
      const int now = std::min(at_once, to - p);
      const char* w = static_cast<const char*>(a.data) + p * panel_bytes;
      for (int r = 0; r < n; r += block) {
        const int rows = std::min(block, n - r);
        V sum[MAX_PANELS * MAX_ROWS];
        TILES.of[a.kind][rows][now](w, panel_bytes, a.steps, in.row(r), in.stride, sum, false);
        for (int i = 0; i < now; i++)
          for (int j = 0; j < rows; j++) {
            V v = sum[i * rows + j];
            const int first = (p + i) * LANES;
            if (a.kind == INT8)
              v = __builtin_convertvector((I)v - load<I>(a.sums + first), V) * load<V>(a.scale + first) * in.scale[r + j];
            if (a.kind == INT4) v = fused(load<V>(a.scale + first), splat(-in.zero[r + j]), v) * in.scale[r + j];
            if (a.bias) v += load<V>(a.bias + first);
            sum[i * rows + j] = v;
          }
        for (int i = 0; i < now; i += unit)
          for (int j = 0; j < rows; j++) each(p + i, r + j, &sum[i * rows + j], rows);
      }
      p += now;
    }
  }
}

}  // namespace
