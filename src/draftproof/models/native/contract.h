// What Python hands over, as `structures.py` has it, and how the library says so: both are compared at load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

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
  Place place;
  const int32_t* tokens;
  const int32_t* positions;  // null: each is one behind its parent's
  const int32_t* parents;    // null: a chain
  float* states;             // [count][hidden], or null: not wanted
  int32_t count, start, last;  // tokens, the slot of the first, and how many of the last rows want logits
};
}

namespace {

// ---- the layout of the structures and the types of the functions, in words ----

template <class T> struct Word;
template <> struct Word<void> { static constexpr const char* is = "none"; };
template <> struct Word<int32_t> { static constexpr const char* is = "int32"; };
template <> struct Word<int64_t> { static constexpr const char* is = "int64"; };
template <> struct Word<double> { static constexpr const char* is = "double"; };
template <> struct Word<float> { static constexpr const char* is = "float"; };
template <class T> struct Word<T*> { static constexpr const char* is = "pointer"; };

template <class Result, class... Arguments> std::string signature(const char* name, Result (*)(Arguments...)) {
  std::string said = std::string(name) + ":";
  ((said += std::string(" ") + Word<Arguments>::is), ...);
  return said + " -> " + Word<Result>::is + "\n";
}

struct Structure {
  std::string said;
  Structure(const char* name, size_t size) : said(std::string(name) + ": " + std::to_string(size) + " bytes") {}
  Structure& has(const char* name, size_t at) {
    said += std::string(", ") + name + " at " + std::to_string(at);
    return *this;
  }
};
#define AT(type, field) has(#field, offsetof(type, field))

std::string structures() {
  const auto matrix = Structure("Matrix", sizeof(Matrix))
      .AT(Matrix, data).AT(Matrix, scale).AT(Matrix, sums).AT(Matrix, bias)
      .AT(Matrix, rows).AT(Matrix, steps).AT(Matrix, kind);
  const auto layer = Structure("Layer", sizeof(Layer))
      .AT(Layer, qkv).AT(Layer, out).AT(Layer, gate_up).AT(Layer, down)
      .AT(Layer, before_attention).AT(Layer, query_norm).AT(Layer, key_norm).AT(Layer, after_attention)
      .AT(Layer, before_mlp).AT(Layer, after_mlp).AT(Layer, window).AT(Layer, rope);
  const auto model = Structure("Model", sizeof(Model))
      .AT(Model, layers).AT(Model, hidden).AT(Model, heads).AT(Model, kv_heads).AT(Model, head_dim).AT(Model, rotated)
      .AT(Model, intermediate).AT(Model, activation).AT(Model, epsilon).AT(Model, attention_scale)
      .AT(Model, embedding_scale).AT(Model, attention_cap).AT(Model, logit_cap).AT(Model, cache_kind)
      .AT(Model, layer).AT(Model, final_norm).AT(Model, head).AT(Model, embedding);
  const auto angles = Structure("Angles", sizeof(Angles)).AT(Angles, cos).AT(Angles, sin);
  const auto place = Structure("Place", sizeof(Place)).AT(Place, cache).AT(Place, capacity);
  const auto span = Structure("Span", sizeof(Span))
      .AT(Span, place).AT(Span, tokens).AT(Span, positions).AT(Span, parents).AT(Span, states)
      .AT(Span, count).AT(Span, start).AT(Span, last);
  std::string said;
  for (const Structure* one : {&matrix, &layer, &model, &angles, &place, &span}) said += one->said + "\n";
  return said;
}

}  // namespace
