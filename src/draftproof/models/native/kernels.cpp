// One pass of a decoder-only transformer on the CPU, for the few rows that decoding needs.
//
// Every output is summed in one order that depends on nothing but its own row: not on how many rows a pass has, nor on
// what stands in them, nor whose they are, nor on the number of threads, nor on how far the cache reaches. So a token's
// logits have the same bits in a pass over one token, in one over nine, and in one that it shares with other requests.
//
// Weights lie in panels of 16 output rows: [panel][step][16 rows][4 bytes], one step being 4 bytes of a row's inputs (one
// float32, two bfloat16 or four int8), so that a pass reads them front to back, once, 64 bytes at a time. The caches have
// the same layout, which makes attention two more such products with a softmax between them. Weights of 4 bits lie in
// blocks of 64 inputs: 8 times 64 bytes, the low halves of the bytes one step and the high halves the next, and then the
// scales of two groups of 32 inputs for 16 rows, in bfloat16.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif
#include <omp.h>

namespace {

typedef float V __attribute__((vector_size(64)));
typedef int32_t I __attribute__((vector_size(64)));
typedef uint32_t U __attribute__((vector_size(64)));

constexpr int LANES = 16, MAX_ROWS = 12, MAX_ROWS4 = 6, MAX_PANELS = 4;
enum Kind : int32_t { FLOAT32 = 0, BFLOAT16 = 1, INT8 = 2, INT4 = 3 };

inline int bytes_of(int kind) { return kind == FLOAT32 ? 4 : kind == BFLOAT16 ? 2 : 1; }
template <class T> inline T load(const void* p) {
  T v;
  memcpy(&v, p, sizeof v);
  return v;
}
inline void store(void* p, V v) { memcpy(p, &v, sizeof v); }
inline V splat(float x) { return V{} + x; }
inline float as_float(uint32_t x) { return load<float>(&x); }

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
  V n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
  V r = x - n * 0.693359375f + n * 2.12194440e-4f;
  V y = splat(1.9875691500e-4f);
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1.0f;
  I scale = (__builtin_convertvector(n, I) + 127) << 23;
  return y * (V)scale;
}
inline V hyperbolic_tangent(V x) { return 1.0f - 2.0f / (exponential(2.0f * x) + 1.0f); }

inline uint16_t to_bfloat16(float x) {
  uint32_t u = load<uint32_t>(&x);
  if ((u & 0x7fffffff) > 0x7f800000) return uint16_t(u >> 16) | 64;
  return uint16_t((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

}  // namespace

extern "C" {

struct Matrix {
  const void* data;     // panels
  const float* scale;   // int8: one for each output row; int4: the sum of each output row's weights
  const int32_t* sums;  // int8: 128 times the sum of each output row
  const float* bias;    // or null
  int32_t rows;         // a multiple of 16
  int32_t steps;        // a row's input bytes / 4
  int32_t kind;
};

struct Layer {
  Matrix qkv, out, gate_up, down;  // gate and up in alternating panels
  const float *before_attention, *query_norm, *key_norm, *after_attention, *before_mlp, *after_mlp;  // null: none
  int32_t window;  // 0: sees everything
  int32_t rope;    // which of the two tables
};

struct Model {
  int32_t layers, hidden, heads, kv_heads, head_dim, rotated, intermediate, activation;
  float epsilon, attention_scale, embedding_scale, attention_cap, logit_cap;  // a cap of 0: none
  int32_t cache_kind;
  const Layer* layer;
  const float* final_norm;
  Matrix head, embedding;
};

struct Angles {  // what turns queries and keys: one table for all layers, or one a kind
  const float* cos[2];  // [position][rotated / 2]
  const float* sin[2];
};

struct Place {  // one request's keys and values
  void* cache;
  int64_t capacity;  // slots, a multiple of 16
};

struct Span {  // what a pass reads for one request
  Place at;
  const int32_t* tokens;
  const int32_t* positions;  // null: the slots
  const int32_t* parents;    // null: a chain
  float* states;             // [count][hidden], or null: not wanted
  int32_t count, start, last;  // tokens, the slot of the first, and how many of the last rows want logits
};
}

namespace {

// ---- products: out[row][16 panel + lane] = sum over steps, for up to 12 rows and 4 panels at once ----

struct Float32 {
  typedef V Sum;
  static inline V add(V sum, const char* w, uint32_t x) { return sum + load<V>(w) * as_float(x); }
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
    sum = sum + (V)(both << 16) * as_float(x << 16);
    return sum + (V)(both & 0xffff0000u) * as_float(x & 0xffff0000u);
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

constexpr int AHEAD = 256;  // bytes fetched before they are needed

template <class K, int ROWS, int PANELS>
void tile(const char* w, size_t panel, int steps, const uint32_t* x, size_t stride, void* out) {
  typename K::Sum sum[PANELS][ROWS] = {};
  for (int s = 0; s < steps; s++) {
    for (int p = 0; p < PANELS; p++) __builtin_prefetch(w + p * panel + s * size_t(64) + AHEAD);
    for (int r = 0; r < ROWS; r++)
      for (int p = 0; p < PANELS; p++) sum[p][r] = K::add(sum[p][r], w + p * panel + s * size_t(64), x[r * stride + s]);
  }
  memcpy(out, sum, sizeof sum);
}

// Four bits: sums of whole numbers over a group of 32 inputs, then one multiplication by the group's scale.
template <int ROWS, int PANELS>
void tile4(const char* w, size_t panel, int steps, const uint32_t* x, size_t stride, void* out) {
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
        for (int r = 0; r < ROWS; r++) sum[p][r] = sum[p][r] + __builtin_convertvector(part[p][r], V) * scale;
      }
    }
  }
  memcpy(out, sum, sizeof sum);
}

typedef void (*Tile)(const char*, size_t, int, const uint32_t*, size_t, void*);
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
        TILES.of[a.kind][rows][now](w, panel_bytes, a.steps, in.row(r), in.stride, sum);
        for (int i = 0; i < now; i++)
          for (int j = 0; j < rows; j++) {
            V v = sum[i * rows + j];
            const int first = (p + i) * LANES;
            if (a.kind == INT8)
              v = __builtin_convertvector((I)v - load<I>(a.sums + first), V) * load<V>(a.scale + first) * in.scale[r + j];
            if (a.kind == INT4) v = (v - load<V>(a.scale + first) * in.zero[r + j]) * in.scale[r + j];
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

// ---- the rest of a layer ----

void normalise(const float* x, const float* weight, float epsilon, int count, float* out) {
  V squares = {};
  for (int i = 0; i < count; i += LANES) {
    V v = load<V>(x + i);
    squares += v * v;
  }
  const float factor = 1.0f / std::sqrt(total(squares) / float(count) + epsilon);
  for (int i = 0; i < count; i += LANES) store(out + i, load<V>(x + i) * factor * load<V>(weight + i));
}

void rotate(float* x, int rotated, const float* cos, const float* sin) {
  const int half = rotated / 2;
  for (int i = 0; i < half; i++) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cos[i] - b * sin[i];
    x[i + half] = b * cos[i] + a * sin[i];
  }
}

struct Row {  // of a pass: one token
  int span, token, slot, position;
};
struct Item {  // of attention's work: query rows `first` up to `first + count` of one span, whose tokens begin at row `base`
  int span, base, first, count;
};

struct Work {
  std::vector<float> x, add, qkv, logits;
  Inputs hidden, queries, attended, inner;
  std::vector<Row> rows;
  std::vector<Item> items;
  std::vector<int> wanted;  // rows whose logits are

  void plan(const Model& m, const Span* spans, int n_spans) {
    rows.clear(), items.clear(), wanted.clear();
    for (int s = 0; s < n_spans; s++)
      for (int t = 0; t < spans[s].count; t++) {
        const int slot = spans[s].start + t;
        if (t >= spans[s].count - spans[s].last) wanted.push_back(int(rows.size()));
        rows.push_back({s, spans[s].tokens[t], slot, spans[s].positions ? spans[s].positions[t] : slot});
      }
    const int group = m.heads / m.kv_heads;
    const int spread = int(rows.size()) * m.heads / std::max(1, 2 * omp_get_num_threads());
    for (int s = 0, base = 0; s < n_spans; base += spans[s++].count) {
      const int all = spans[s].count * group, block = std::min({MAX_ROWS, all, std::max(4, spread)});
      for (int first = 0; first < all; first += block) items.push_back({s, base, first, std::min(block, all - first)});
    }
  }
};

struct Heads {  // one layer's keys and values of one head
  char *keys, *values;
};
Heads heads_of(const Model& m, const Place& at, int layer, int head) {
  const size_t one = size_t(at.capacity) * m.head_dim * bytes_of(m.cache_kind);
  char* base = static_cast<char*>(at.cache) + (size_t(layer) * 2 * m.kv_heads) * one;
  return {base + head * one, base + (m.kv_heads + head) * one};
}

void remember(const Model& m, const Place& at, int layer, int head, int slot, const float* key, const float* value) {
  Heads to = heads_of(m, at, layer, head);
  const int d = m.head_dim;
  if (m.cache_kind == FLOAT32) {
    float *k = reinterpret_cast<float*>(to.keys), *v = reinterpret_cast<float*>(to.values);
    for (int i = 0; i < d; i++) k[(size_t(slot / LANES) * d + i) * LANES + slot % LANES] = key[i];
    for (int i = 0; i < d; i++) v[(size_t(i / LANES) * at.capacity + slot) * LANES + i % LANES] = value[i];
  } else {
    uint16_t *k = reinterpret_cast<uint16_t*>(to.keys), *v = reinterpret_cast<uint16_t*>(to.values);
    for (int i = 0; i < d; i++)
      k[((size_t(slot / LANES) * (d / 2) + i / 2) * LANES + slot % LANES) * 2 + i % 2] = to_bfloat16(key[i]);
    for (int i = 0; i < d; i++)
      v[((size_t(i / LANES) * (at.capacity / 2) + slot / 2) * LANES + i % LANES) * 2 + slot % 2] =
          to_bfloat16(value[i]);
  }
}

// The first slot that a token of a span sees: a window counts positions, which are the slots before the span.
int lowest(const Span& span, int token, int window) {
  if (!window) return 0;
  const int from = (span.positions ? span.positions[token] : span.start + token) - window + 1;
  if (from <= span.start || !span.positions) return std::max(0, from);
  while (token && span.positions[token - 1] >= from) token--;
  return span.start + token;
}

// One item of work for one key head; query row r is head `r % group` of the span's token `r / group`.
void attend(const Model& m, const Span& of, const Item& item, int layer, int head, Work& work) {
  const int group = m.heads / m.kv_heads, d = m.head_dim, kind = m.cache_kind, window = m.layer[layer].window;
  const int per_step = 4 / bytes_of(kind), first = item.first, count = item.count;
  const Heads past = heads_of(m, of.at, layer, head);
  auto token = [&](int r) { return (first + r) / group; };
  auto slot = [&](int r) { return of.start + token(r); };
  const int low = lowest(of, token(0), window) / LANES, high = slot(count - 1) / LANES + 1, span = (high - low) * LANES;
  thread_local std::vector<float> score;
  thread_local std::vector<uint32_t> weight;
  score.resize(size_t(count) * span);
  weight.resize(size_t(count) * span);

  const uint32_t* q = work.queries.row((size_t(item.base) * m.heads) + head * group);
  thread_local std::vector<uint32_t> gathered;
  const int steps = d / per_step;
  gathered.resize(size_t(count) * steps);
  for (int r = 0; r < count; r++) {
    const size_t from = size_t(token(r)) * m.heads + (first + r) % group;
    memcpy(&gathered[size_t(r) * steps], q + from * work.queries.stride, steps * 4);
  }
  V sum[MAX_PANELS * MAX_ROWS];
  for (int p = low; p < high;) {
    const int now = std::min(panels_at_once(kind, count), high - p);
    TILES.of[kind][count][now](past.keys + size_t(p) * steps * 64, size_t(steps) * 64, steps, gathered.data(), steps, sum);
    for (int i = 0; i < now; i++)
      for (int r = 0; r < count; r++) {
        V v = sum[i * count + r] * m.attention_scale;
        if (m.attention_cap > 0) v = hyperbolic_tangent(v / m.attention_cap) * m.attention_cap;
        store(&score[size_t(r) * span + (p + i - low) * LANES], v);
      }
    p += now;
  }
  float inverse[MAX_ROWS];
  const size_t weights = size_t(span) / per_step;
  for (int r = 0; r < count; r++) {
    float* s = &score[size_t(r) * span];
    const int from = lowest(of, token(r), window) - low * LANES, to = slot(r) - low * LANES + 1;
    V most = splat(-INFINITY);
    for (int i = 0; i < span; i += LANES) {
      I index = I{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + i;
      V v = load<V>(s + i);
      v = (index >= from) & (index < to) ? v : splat(-INFINITY);
      most = v > most ? v : most;
      store(s + i, v);
    }
    const float top = largest(most);
    V sums = {};
    for (int i = 0; i < span; i += LANES) {
      V v = load<V>(s + i);
      v = v == splat(-INFINITY) ? V{} : exponential(v - top);
      store(s + i, v);
    }
    // the sum runs from the row's first own block, so a longer span adds only zeros
    for (int i = 0; i < span; i += LANES) sums += load<V>(s + i);
    inverse[r] = 1.0f / total(sums);
    uint32_t* w = &weight[r * weights];
    if (kind == FLOAT32) memcpy(w, s, span * sizeof(float));
    else
      for (int i = 0; i < span; i++) reinterpret_cast<uint16_t*>(w)[i] = to_bfloat16(s[i]);
  }
  const size_t value_panel = size_t(of.at.capacity) * LANES * bytes_of(kind);
  const size_t skipped = size_t(low) * LANES / per_step * 64;
  for (int p = 0; p < d / LANES;) {
    const int now = std::min(panels_at_once(kind, count), d / LANES - p);
    TILES.of[kind][count][now](past.values + p * value_panel + skipped, value_panel, int(weights), weight.data(), weights,
                               sum);
    for (int i = 0; i < now; i++)
      for (int r = 0; r < count; r++) {
        const size_t to = size_t(item.base + token(r)) * m.heads + head * group + (first + r) % group;
        store(&work.qkv[to * d + (p + i) * LANES], sum[i * count + r] * inverse[r]);
      }
    p += now;
  }
}

// The value of a token, from panels.
void embed(const Model& m, int token, float* x) {
  const Matrix& e = m.embedding;
  const char* at = static_cast<const char*>(e.data) + (size_t(token / LANES) * e.steps * LANES + token % LANES) * 4;
  for (int s = 0; s < e.steps; s++, at += 64) {
    const uint32_t w = load<uint32_t>(at);
    if (e.kind == FLOAT32) x[s] = as_float(w);
    else x[2 * s] = as_float(w << 16), x[2 * s + 1] = as_float(w & 0xffff0000u);
  }
  for (int i = 0; i < m.hidden; i++) x[i] *= m.embedding_scale;
}

// Inside a parallel region: a pass over the spans; logits [rows][vocabulary] of each span's last rows, one after the other.
void pass(const Model& m, const Angles& angles, const Span* spans, int n_spans, float* logits, Work& work) {
  const int hidden = m.hidden, d = m.head_dim, qkv_width = (m.heads + 2 * m.kv_heads) * d;
  int n = 0;
  for (int s = 0; s < n_spans; s++) n += spans[s].count;
  auto x = [&](int r) { return &work.x[size_t(r) * hidden]; };
  auto add = [&](int r) { return &work.add[size_t(r) * hidden]; };
#pragma omp single
  {
    work.plan(m, spans, n_spans);
    work.x.resize(size_t(n) * hidden);
    work.add.resize(size_t(n) * hidden);
    work.qkv.resize(size_t(n) * qkv_width);
    work.hidden.make(n, hidden);
    work.queries.make(size_t(n) * m.heads, d);
    work.attended.make(n, size_t(m.heads) * d);
    work.inner.make(n, m.intermediate);
  }
#pragma omp for
  for (int r = 0; r < n; r++) {
    embed(m, work.rows[r].token, x(r));
    thread_local std::vector<float> h;
    h.resize(hidden);
    normalise(x(r), m.layer[0].before_attention, m.epsilon, hidden, h.data());
    work.hidden.put(m.layer[0].qkv.kind, r, h.data(), hidden);
  }
  for (int l = 0; l < m.layers; l++) {
    const Layer& layer = m.layer[l];
    multiply(layer.qkv, work.hidden, n, 1, [&](int p, int r, const V* v, int) {
      store(&work.qkv[size_t(r) * qkv_width + p * LANES], *v);
    });
    const float *cos = angles.cos[layer.rope], *sin = angles.sin[layer.rope];
    const int parts = m.heads + m.kv_heads;
#pragma omp for
    for (int i = 0; i < n * parts; i++) {
      const int r = i / parts, h = i % parts;
      const Row& row = work.rows[r];
      const size_t turn = size_t(row.position) * (m.rotated / 2);
      float* one = &work.qkv[size_t(r) * qkv_width + size_t(h) * d];
      const float* norm = h < m.heads ? layer.query_norm : layer.key_norm;
      if (norm) normalise(one, norm, m.epsilon, d, one);
      rotate(one, m.rotated, cos + turn, sin + turn);
      if (h < m.heads) work.queries.put(m.cache_kind, size_t(r) * m.heads + h, one, d);
      else remember(m, spans[row.span].at, l, h - m.heads, row.slot, one, one + size_t(m.kv_heads) * d);
    }
    const int items = int(work.items.size());
#pragma omp for schedule(dynamic, 1)
    for (int i = 0; i < m.kv_heads * items; i++) {
      const Item& item = work.items[i % items];
      attend(m, spans[item.span], item, l, i / items, work);
    }
#pragma omp for
    for (int r = 0; r < n; r++) work.attended.put(layer.out.kind, r, &work.qkv[size_t(r) * m.heads * d], m.heads * d);
    auto keep = [&](int p, int r, const V* v, int) { store(add(r) + p * LANES, *v); };
    multiply(layer.out, work.attended, n, 1, keep);
    auto join = [&](const float* after, const float* before, int kind) {  // residual, and the next part's inputs
#pragma omp for
      for (int r = 0; r < n; r++) {
        if (after) normalise(add(r), after, m.epsilon, hidden, add(r));
        for (int i = 0; i < hidden; i += LANES) store(x(r) + i, load<V>(x(r) + i) + load<V>(add(r) + i));
        normalise(x(r), before, m.epsilon, hidden, add(r));
        work.hidden.put(kind, r, add(r), hidden);
      }
    };
    join(layer.after_attention, layer.before_mlp, layer.gate_up.kind);
#pragma omp single
    work.logits.resize(size_t(n) * m.intermediate);
    multiply(layer.gate_up, work.hidden, n, 2, [&](int p, int r, const V* v, int rows_now) {
      V gate = v[0], up = v[rows_now];
      if (m.activation == 0) gate = gate / (1.0f + exponential(-gate));
      else gate = 0.5f * gate * (1.0f + hyperbolic_tangent(0.7978845608f * (gate + 0.044715f * gate * gate * gate)));
      store(&work.logits[size_t(r) * m.intermediate + p / 2 * LANES], gate * up);
    });
#pragma omp for
    for (int r = 0; r < n; r++)
      work.inner.put(layer.down.kind, r, &work.logits[size_t(r) * m.intermediate], m.intermediate);
    multiply(layer.down, work.inner, n, 1, keep);
    const bool last = l + 1 == m.layers;
    join(layer.after_mlp, last ? m.final_norm : m.layer[l + 1].before_attention, last ? m.head.kind : m.layer[l + 1].qkv.kind);
  }
  for (int s = 0, base = 0; s < n_spans; base += spans[s++].count) {
    if (!spans[s].states) continue;
#pragma omp for
    for (int t = 0; t < spans[s].count; t++) memcpy(spans[s].states + size_t(t) * hidden, add(base + t), hidden * 4);
  }
  const int rows = int(work.wanted.size());
  if (rows == 0) return;
#pragma omp for
  for (int r = 0; r < rows; r++) work.hidden.put(m.head.kind, r, add(work.wanted[r]), hidden);
  multiply(m.head, work.hidden, rows, 1, [&](int p, int r, const V* v, int) {
    V y = *v;
    if (m.logit_cap > 0) y = hyperbolic_tangent(y / m.logit_cap) * m.logit_cap;
    store(logits + size_t(r) * m.head.rows + p * LANES, y);
  });
}

}  // namespace

extern "C" {

// source [rows][steps] 4-byte steps -> panels that begin `panel_bytes` apart; rows up to a multiple of 16 become zero
void draftproof_pack(char* to, const char* from, int64_t rows, int64_t steps, int64_t panel_bytes) {
  const int64_t panels = (rows + LANES - 1) / LANES;
#pragma omp parallel for schedule(dynamic, 4)
  for (int64_t p = 0; p < panels; p++) {
    uint32_t* out = reinterpret_cast<uint32_t*>(to + p * panel_bytes);
    for (int64_t s0 = 0; s0 < steps; s0 += 16)
      for (int lane = 0; lane < LANES; lane++) {
        const int64_t row = p * LANES + lane;
        for (int64_t s = s0; s < std::min(steps, s0 + 16); s++)
          out[s * LANES + lane] = row < rows ? load<uint32_t>(from + (row * steps + s) * 4) : 0;
      }
  }
}

// One pass over all spans; logits [rows][head's rows], each span's last ones behind those of the span before.
void draftproof_run(const Model* m, const Angles* angles, const Span* spans, int32_t n_spans, float* logits) {
  static thread_local Work work;
  Work& shared = work;
#pragma omp parallel
  pass(*m, *angles, spans, n_spans, logits, shared);
}

// Reads a span, then writes `count` tokens, each the most likely (of equals the lowest id), reading all but the last;
// fewer, if one of them is among the `ends`. Returns how many.
int32_t draftproof_write(const Model* m, const Angles* angles, const Span* span, int32_t count, int32_t vocabulary,
                         const int32_t* ends, int32_t n_ends, int32_t* written, float* best) {
  static thread_local Work work;
  static thread_local std::vector<float> logits;
  logits.resize(m->head.rows);
  Work& shared = work;
  float* row = logits.data();
  constexpr int PARTS = 64;
  float top[PARTS];
  int32_t where[PARTS], done = 0;
  bool over = false;
#pragma omp parallel
  for (int step = 0; step < count && !over; step++) {
    Span now = *span;
    now.last = 1;
    if (step) now.tokens = written + step - 1, now.start += now.count + step - 1, now.count = 1;
    pass(*m, *angles, &now, 1, row, shared);
#pragma omp for
    for (int part = 0; part < PARTS; part++) {
      const int from = int(int64_t(vocabulary) * part / PARTS), to = int(int64_t(vocabulary) * (part + 1) / PARTS);
      top[part] = -INFINITY, where[part] = from;
      for (int i = from; i < to; i++)
        if (row[i] > top[part] || row[i] != row[i]) {
          top[part] = row[i], where[part] = i;
          if (row[i] != row[i]) break;
        }
    }
#pragma omp single
    {
      int found = 0;
      for (int part = 0; part < PARTS; part++)
        if (top[part] > top[found] || top[part] != top[part]) {
          found = part;
          if (top[part] != top[part]) break;
        }
      written[step] = where[found], best[step] = top[found];
      over = std::find(ends, ends + n_ends, where[found]) != ends + n_ends;
      done = step + 1;
    }
  }
  return done;
}

// Nothing but reading, as a pass reads its weights: what the memory can do.
float draftproof_sum(const char* data, int64_t bytes) {
  constexpr int64_t PIECE = 1 << 18;
  float sum = 0;
#pragma omp parallel for schedule(dynamic, 1) reduction(+ : sum)
  for (int64_t piece = 0; piece < bytes / PIECE; piece++) {
    const char* at = data + piece * PIECE;
    V parts[4] = {};
    for (int64_t i = 0; i < PIECE; i += 256)
      for (int p = 0; p < 4; p++) {
        __builtin_prefetch(at + i + 64 * p + AHEAD);
        parts[p] += load<V>(at + i + 64 * p);
      }
    sum += total(parts[0] + parts[1] + parts[2] + parts[3]);
  }
  return sum;
}

int32_t draftproof_level() {
#if defined(__AVX512BF16__)
  return 2;
#elif defined(__AVX512F__)
  return 1;
#else
  return 0;
#endif
}
}
