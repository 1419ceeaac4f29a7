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

#include "pass.h"

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
// fewer, if one of them is among the `ends`, or if with it the product of their probabilities falls below `floor`. `sure`
// is the probability of each. Returns how many.
int32_t draftproof_write(const Model* m, const Angles* angles, const Span* span, int32_t count, int32_t vocabulary,
                         const int32_t* ends, int32_t n_ends, double floor, int32_t* written, float* sure) {
  static thread_local Work work;
  static thread_local std::vector<float> logits;
  logits.resize(m->head.rows);
  Work& shared = work;
  float* row = logits.data();
  constexpr int PARTS = 64;
  float top[PARTS], sums[PARTS], best = 0;
  int32_t where[PARTS], done = 0;
  double stays = 1;
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
      written[step] = where[found], best = top[found];
    }
#pragma omp for
    for (int part = 0; part < PARTS; part++) {
      const int from = int(int64_t(vocabulary) * part / PARTS), to = int(int64_t(vocabulary) * (part + 1) / PARTS);
      sums[part] = sum_of_exponentials(row + from, to - from, best);
    }
#pragma omp single
    {
      float sum = 0;
      for (int part = 0; part < PARTS; part++) sum += sums[part];
      sure[step] = best - best == 0 ? 1.0f / sum : NAN;
      stays *= sure[step];
      over = stays < floor || std::find(ends, ends + n_ends, written[step]) != ends + n_ends;
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
// What Python's own description has to equal, word for word, before anything is handed over.
const char* draftproof_contract() {
  static const std::string said = structures() + signature("pack", draftproof_pack) + signature("run", draftproof_run) +
                                  signature("write", draftproof_write) + signature("sum", draftproof_sum) +
                                  signature("level", draftproof_level);
  return said.c_str();
}
}
