// Keys and values of the requests, and the attention of a pass over them.
//
// A token sees the slots before its span, and of the span its path: in a chain all tokens up to itself, in a tree its
// ancestors and itself. Sums run over what it sees in the order of the path, whatever slots the path stands in: so a
// token of a tree has the bits that it has at the end of the chain of its ancestors.
#pragma once

#include "contract.h"
#include "products.h"

namespace {

struct Row {  // of a pass: one token
  int span, token, slot, position;
  int depth;  // tokens of the span that it sees, itself left out
  int path;   // of a tree: where its path begins in `Plan::paths`
};
struct Item {  // of attention's work: query rows `first` up to `first + count` of one span, whose tokens begin at row `base`
  int span, base, first, count;
};

struct Plan {  // what a pass has to do
  std::vector<Row> rows;
  std::vector<int> paths;  // of trees: each token's ancestors and itself, as indices within the span
  std::vector<Item> items;
  std::vector<int> wanted;  // rows whose logits are

  void make(const Model& m, const Span* spans, int n_spans) {
    rows.clear(), paths.clear(), items.clear(), wanted.clear();
    for (int s = 0; s < n_spans; s++) add_rows(s, spans[s]);
    const int group = m.heads / m.kv_heads;
    const int spread = int(rows.size()) * m.heads / std::max(1, 2 * omp_get_num_threads());
    for (int s = 0, base = 0; s < n_spans; base += spans[s++].count) {
      const int together = spans[s].parents ? group : spans[s].count * group;  // tokens of a tree see each its own
      const int block = std::min({MAX_ROWS, together, std::max(4, spread)});
      for (int part = 0; part < spans[s].count * group; part += together)
        for (int first = 0; first < together; first += block)
          items.push_back({s, base, part + first, std::min(block, together - first)});
    }
  }

 private:
  void add_rows(int s, const Span& span) {
    const int base = int(rows.size());
    for (int t = 0; t < span.count; t++) {
      Row row = {s, span.tokens[t], span.start + t, 0, t, -1};
      if (span.parents) {
        row.path = int(paths.size()), row.depth = 0;
        if (const int parent = span.parents[t]; parent >= 0) {
          const Row& above = rows[base + parent];
          row.depth = above.depth + 1;
          for (int i = 0; i < row.depth; i++) paths.push_back(paths[above.path + i]);
        }
        paths.push_back(t);
      }
      row.position = span.positions ? span.positions[t] : span.start + row.depth;
      if (t >= span.count - span.last) wanted.push_back(base + t);
      rows.push_back(row);
    }
  }
};

template <class T> struct Layout {  // of one head's keys and values, in numbers: panels of 16 slots, panels of 16 values
  static constexpr int PER_STEP = 4 / sizeof(T);
  static size_t key(int head_dim, int slot, int i) {
    return ((size_t(slot / LANES) * (head_dim / PER_STEP) + i / PER_STEP) * LANES + slot % LANES) * PER_STEP + i % PER_STEP;
  }
  static size_t value(int64_t capacity, int slot, int i) {
    return ((size_t(i / LANES) * (capacity / PER_STEP) + slot / PER_STEP) * LANES + i % LANES) * PER_STEP + slot % PER_STEP;
  }
};

struct Heads {  // one layer's keys and values of one head
  char *keys, *values;
  int64_t capacity;
};
Heads heads_of(const Model& m, const Place& at, int layer, int head) {
  const size_t one = size_t(at.capacity) * m.head_dim * bytes_of(m.cache_kind);
  char* base = static_cast<char*>(at.cache) + (size_t(layer) * 2 * m.kv_heads) * one;
  return {base + head * one, base + (m.kv_heads + head) * one, at.capacity};
}

template <class T, class Rounded>
void remember(const Heads& to, int d, int slot, const float* key, const float* value, Rounded rounded) {
  T *k = reinterpret_cast<T*>(to.keys), *v = reinterpret_cast<T*>(to.values);
  for (int i = 0; i < d; i++) k[Layout<T>::key(d, slot, i)] = rounded(key[i]);
  for (int i = 0; i < d; i++) v[Layout<T>::value(to.capacity, slot, i)] = rounded(value[i]);
}
void remember(const Model& m, const Place& at, int layer, int head, int slot, const float* key, const float* value) {
  const Heads to = heads_of(m, at, layer, head);
  if (m.cache_kind == FLOAT32) remember<float>(to, m.head_dim, slot, key, value, [](float x) { return x; });
  else remember<uint16_t>(to, m.head_dim, slot, key, value, to_bfloat16);
}

// The end of what a token of a tree sees, with its path in order: from a whole panel of slots before the span on.
struct Tail {
  std::vector<uint32_t> keys, values;

  template <class T> void gather(const Heads& past, int d, int from, int start, const int* path, int depth, int to) {
    keys.assign(size_t(to - from) * d * sizeof(T) / 4, 0), values.assign(keys.size(), 0);
    const T *k = reinterpret_cast<const T*>(past.keys), *v = reinterpret_cast<const T*>(past.values);
    T *own_k = reinterpret_cast<T*>(keys.data()), *own_v = reinterpret_cast<T*>(values.data());
    for (int place = from; place <= start + depth; place++) {
      const int slot = place < start ? place : start + path[place - start];
      for (int i = 0; i < d; i++) {
        own_k[Layout<T>::key(d, place - from, i)] = k[Layout<T>::key(d, slot, i)];
        own_v[Layout<T>::value(to - from, place - from, i)] = v[Layout<T>::value(past.capacity, slot, i)];
      }
    }
  }
};

// The first place that a token sees: a window counts positions, and before the span they are the slots.
int lowest(const Span& span, const Plan& plan, const Row* rows, int token, int window) {
  if (!window) return 0;
  const Row& row = rows[token];
  const int from = row.position - window + 1;
  if (from <= span.start || !span.positions) return std::max(0, from);
  auto above = [&](int depth) { return rows[span.parents ? plan.paths[row.path + depth] : depth].position; };
  int depth = row.depth;
  while (depth && above(depth - 1) >= from) depth--;
  return span.start + depth;
}

// Scores of one row to weights: `from` up to `to` are seen. Returns 1 / their sum.
float softmax(float* s, int count, int from, int to) {
  V most = splat(-INFINITY);
  for (int i = 0; i < count; i += LANES) {
    I index = I{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15} + i;
    V v = load<V>(s + i);
    v = (index >= from) & (index < to) ? v : splat(-INFINITY);
    most = v > most ? v : most;
    store(s + i, v);
  }
  const float top = largest(most);
  V sums = {};  // they run from the row's first own block, so a longer span adds only zeros
  for (int i = 0; i < count; i += LANES) {
    V v = load<V>(s + i);
    v = v == splat(-INFINITY) ? V{} : exponential(v - top);
    store(s + i, v);
    sums += v;
  }
  return 1.0f / total(sums);
}

// One item of work for one key head; query row r is head `r % group` of the span's token `r / group`. What the rows
// gather goes to `mixed` [row of the pass][heads][head_dim].
void attend(const Model& m, const Span& span, const Plan& plan, const Item& item, int layer, int head,
            const Inputs& queries, float* mixed) {
  const int group = m.heads / m.kv_heads, d = m.head_dim, kind = m.cache_kind, window = m.layer[layer].window;
  const int per_step = 4 / bytes_of(kind), first = item.first, count = item.count, steps = d / per_step;
  const Heads past = heads_of(m, span.place, layer, head);
  const Row* rows = &plan.rows[item.base];
  auto token = [&](int r) { return (first + r) / group; };
  auto place = [&](int r) { return span.start + rows[token(r)].depth; };
  const int low = lowest(span, plan, rows, token(0), window) / LANES, high = place(count - 1) / LANES + 1;
  const int seen = (high - low) * LANES;
  int own = high;  // the first panel of slots that is not read from the cache
  thread_local Tail tail;
  if (span.parents) {
    own = std::max(low, span.start / LANES);
    const Row& row = rows[token(0)];
    const int* path = &plan.paths[row.path];
    if (kind == FLOAT32) tail.gather<float>(past, d, own * LANES, span.start, path, row.depth, high * LANES);
    else tail.gather<uint16_t>(past, d, own * LANES, span.start, path, row.depth, high * LANES);
  }
  thread_local std::vector<float> score;
  thread_local std::vector<uint32_t> weight, gathered;
  score.resize(size_t(count) * seen);
  weight.resize(size_t(count) * seen);
  gathered.resize(size_t(count) * steps);
  for (int r = 0; r < count; r++) {
    const size_t from = size_t(item.base + token(r)) * m.heads + head * group + (first + r) % group;
    memcpy(&gathered[size_t(r) * steps], queries.row(from), steps * 4);
  }
  V sum[MAX_PANELS * MAX_ROWS];
  for (int p = low; p < high;) {
    const int now = std::min(panels_at_once(kind, count), (p < own ? own : high) - p);
    const char* keys = p < own ? past.keys + size_t(p) * steps * 64
                               : reinterpret_cast<const char*>(tail.keys.data()) + size_t(p - own) * steps * 64;
    TILES.of[kind][count][now](keys, size_t(steps) * 64, steps, gathered.data(), steps, sum, false);
    for (int i = 0; i < now; i++)
      for (int r = 0; r < count; r++) {
        V v = sum[i * count + r] * m.attention_scale;
        if (m.attention_cap > 0) v = hyperbolic_tangent(v / m.attention_cap) * m.attention_cap;
        store(&score[size_t(r) * seen + (p + i - low) * LANES], v);
      }
    p += now;
  }
  float inverse[MAX_ROWS];
  const size_t weights = size_t(seen) / per_step;
  for (int r = 0; r < count; r++) {
    float* s = &score[size_t(r) * seen];
    const int before = low * LANES;
    inverse[r] = softmax(s, seen, lowest(span, plan, rows, token(r), window) - before, place(r) + 1 - before);
    uint32_t* w = &weight[r * weights];
    if (kind == FLOAT32) memcpy(w, s, seen * sizeof(float));
    else
      for (int i = 0; i < seen; i++) reinterpret_cast<uint16_t*>(w)[i] = to_bfloat16(s[i]);
  }
  const size_t panel = size_t(past.capacity) * LANES * bytes_of(kind);
  const size_t own_panel = size_t(high - own) * LANES * LANES * bytes_of(kind);
  const size_t skipped = size_t(low) * LANES / per_step * 64;
  const int from_cache = (own - low) * LANES / per_step, from_tail = (high - own) * LANES / per_step;
  for (int p = 0; p < d / LANES;) {
    const int now = std::min(panels_at_once(kind, count), d / LANES - p);
    const Tile tile = TILES.of[kind][count][now];
    if (from_cache) tile(past.values + p * panel + skipped, panel, from_cache, weight.data(), weights, sum, false);
    if (from_tail)
      tile(reinterpret_cast<const char*>(tail.values.data()) + p * own_panel, own_panel, from_tail,
           weight.data() + from_cache, weights, sum, from_cache > 0);
    for (int i = 0; i < now; i++)
      for (int r = 0; r < count; r++) {
        const size_t to = size_t(item.base + token(r)) * m.heads + head * group + (first + r) % group;
        store(mixed + to * d + (p + i) * LANES, sum[i * count + r] * inverse[r]);
      }
    p += now;
  }
}

}  // namespace
