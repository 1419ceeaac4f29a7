// A pass: layer by layer over all tokens of all spans.
#pragma once

#include "attention.h"

namespace {

void normalise(const float* x, const float* weight, float epsilon, int count, float* out) {
  V squares = {};
  for (int i = 0; i < count; i += LANES) squares = fused(load<V>(x + i), load<V>(x + i), squares);
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

V activate(int kind, V gate) {
  if (kind == 0) return gate / (1.0f + exponential(-gate));
  return 0.5f * gate * (1.0f + hyperbolic_tangent(0.7978845608f * (gate + 0.044715f * gate * gate * gate)));
}

struct Numbers {  // `width` of them for each row
  std::vector<float> data;
  size_t width = 0;
  void make(size_t rows, size_t of_each) { width = of_each, data.resize(rows * of_each); }
  float* row(size_t r) { return data.data() + r * width; }
};

struct Work {  // of one pass; each buffer has one meaning
  Plan plan;
  Numbers x;          // what a token has become so far
  Numbers added;      // what attention or the MLP is going to add to it
  Numbers normed;     // it, normalised for the next part; behind the last layer the final hidden states
  Numbers qkv;        // queries, keys and values of all heads
  Numbers mixed;      // what each query head has gathered
  Numbers activated;  // the inner numbers of the MLP
  Inputs into_qkv, queries, into_out, into_gate_up, into_down, into_head;

  void make(const Model& m, const Span* spans, int n_spans) {
    plan.make(m, spans, n_spans);
    const size_t n = plan.rows.size(), d = m.head_dim;
    x.make(n, m.hidden), added.make(n, m.hidden), normed.make(n, m.hidden);
    qkv.make(n, (m.heads + 2 * m.kv_heads) * d), mixed.make(n, m.heads * d), activated.make(n, m.intermediate);
    into_qkv.make(n, m.hidden), queries.make(n * m.heads, d), into_out.make(n, m.heads * d);
    into_gate_up.make(n, m.hidden), into_down.make(n, m.intermediate), into_head.make(plan.wanted.size(), m.hidden);
  }
};

// Attention of one layer, from rows of `into_qkv` to rows of `into_out`.
void attention(const Model& m, const Angles& angles, const Span* spans, int l, Work& work) {
  const Layer& layer = m.layer[l];
  const int n = int(work.plan.rows.size()), d = m.head_dim;
  multiply(layer.qkv, work.into_qkv, n, 1, [&](int p, int r, const V* v, int) { store(work.qkv.row(r) + p * LANES, *v); });
  const float *cos = angles.cos[layer.rope], *sin = angles.sin[layer.rope];
  const int parts = m.heads + m.kv_heads;
#pragma omp for
  for (int i = 0; i < n * parts; i++) {
    const int r = i / parts, h = i % parts;
    const Row& row = work.plan.rows[r];
    const size_t turn = size_t(row.position) * (m.rotated / 2);
    float* one = work.qkv.row(r) + size_t(h) * d;
    const float* norm = h < m.heads ? layer.query_norm : layer.key_norm;
    if (norm) normalise(one, norm, m.epsilon, d, one);
    rotate(one, m.rotated, cos + turn, sin + turn);
    if (h < m.heads) work.queries.put(m.cache_kind, size_t(r) * m.heads + h, one, d);
    else remember(m, spans[row.span].place, l, h - m.heads, row.slot, one, one + size_t(m.kv_heads) * d);
  }
  const int items = int(work.plan.items.size());
#pragma omp for schedule(dynamic, 1)
  for (int i = 0; i < m.kv_heads * items; i++) {
    const Item& item = work.plan.items[i % items];
    attend(m, spans[item.span], work.plan, item, l, i / items, work.queries, work.mixed.row(0));
  }
#pragma omp for
  for (int r = 0; r < n; r++) work.into_out.put(layer.out.kind, r, work.mixed.row(r), m.heads * d);
}

// Inside a parallel region: a pass over the spans; logits [rows][vocabulary] of each span's last rows, one after the other.
void pass(const Model& m, const Angles& angles, const Span* spans, int n_spans, float* logits, Work& work) {
#pragma omp single
  work.make(m, spans, n_spans);
  const int n = int(work.plan.rows.size()), hidden = m.hidden;
#pragma omp for
  for (int r = 0; r < n; r++) {
    embed(m, work.plan.rows[r].token, work.x.row(r));
    normalise(work.x.row(r), m.layer[0].before_attention, m.epsilon, hidden, work.normed.row(r));
    work.into_qkv.put(m.layer[0].qkv.kind, r, work.normed.row(r), hidden);
  }
  auto keep = [&](int p, int r, const V* v, int) { store(work.added.row(r) + p * LANES, *v); };
  // what a part adds joins the rest, and becomes the next part's inputs: none behind the last layer
  auto join = [&](const float* after, const float* before, Inputs* into, int kind) {
#pragma omp for
    for (int r = 0; r < n; r++) {
      float *x = work.x.row(r), *added = work.added.row(r);
      if (after) normalise(added, after, m.epsilon, hidden, added);
      for (int i = 0; i < hidden; i += LANES) store(x + i, load<V>(x + i) + load<V>(added + i));
      normalise(x, before, m.epsilon, hidden, work.normed.row(r));
      if (into) into->put(kind, r, work.normed.row(r), hidden);
    }
  };
  for (int l = 0; l < m.layers; l++) {
    const Layer& layer = m.layer[l];
    attention(m, angles, spans, l, work);
    multiply(layer.out, work.into_out, n, 1, keep);
    join(layer.after_attention, layer.before_mlp, &work.into_gate_up, layer.gate_up.kind);
    multiply(layer.gate_up, work.into_gate_up, n, 2, [&](int p, int r, const V* v, int rows_now) {
      store(work.activated.row(r) + p / 2 * LANES, activate(m.activation, v[0]) * v[rows_now]);
    });
#pragma omp for
    for (int r = 0; r < n; r++) work.into_down.put(layer.down.kind, r, work.activated.row(r), m.intermediate);
    multiply(layer.down, work.into_down, n, 1, keep);
    if (l + 1 == m.layers) join(layer.after_mlp, m.final_norm, nullptr, 0);
    else join(layer.after_mlp, m.layer[l + 1].before_attention, &work.into_qkv, m.layer[l + 1].qkv.kind);
  }
#pragma omp for
  for (int r = 0; r < n; r++) {
    const Row& row = work.plan.rows[r];
    const Span& span = spans[row.span];
    if (span.states) memcpy(span.states + size_t(row.slot - span.start) * hidden, work.normed.row(r), hidden * 4);
  }
  const int rows = int(work.plan.wanted.size());
  if (rows == 0) return;
#pragma omp for
  for (int r = 0; r < rows; r++) work.into_head.put(m.head.kind, r, work.normed.row(work.plan.wanted[r]), hidden);
  multiply(m.head, work.into_head, rows, 1, [&](int p, int r, const V* v, int) {
    V y = *v;
    if (m.logit_cap > 0) y = hyperbolic_tangent(y / m.logit_cap) * m.logit_cap;
    store(logits + size_t(r) * m.head.rows + p * LANES, y);
  });
}

}  // namespace
