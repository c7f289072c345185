/* Aligns the pairs of a file by WFA2-lib, exactly and with CIGARs, with one aligner a thread.
 *
 *     wfa2_driver PAIRS.seq THREADS edit
 *     wfa2_driver PAIRS.seq THREADS affine MISMATCH GAP_OPEN GAP_EXTEND
 *
 * The file has two lines a pair, ">query" and "<reference". For each line on standard input all
 * pairs are aligned once; the answer is a line with the seconds that took. Reading the file, and
 * starting threads and aligners, is not part of them. At the end of the input the scores of the
 * last pass follow, a line each. Built and run by benchmarks/common/wfa2.py.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "wavefront/wavefront_align.h"

enum { MOST_THREADS = 1024, CHUNKS_A_THREAD = 32 };

typedef struct {
  char *query, *ref;
  int query_len, ref_len;
  int score;
} pair_t;

static pair_t *pairs;
static size_t n_pairs, chunk;
static atomic_size_t next_pair;
static atomic_int is_over;
static pthread_barrier_t begin, end;
static wavefront_aligner_attr_t attributes;

static void fail(const char *message) {
  fprintf(stderr, "wfa2_driver: %s\n", message);
  exit(1);
}

/* Read a line that begins with a mark; return its symbols, or NULL at the end of the file. */
static char *read_sequence(FILE *file, char mark, int *length) {
  char *line = NULL;
  size_t capacity = 0;
  ssize_t n = getline(&line, &capacity, file);
  if (n < 0) {
    free(line);
    return NULL;
  }
  if (line[0] != mark) fail("a line does not begin with its mark");
  while (n > 1 && (line[n - 1] == '\n' || line[n - 1] == '\r')) line[--n] = 0;
  memmove(line, line + 1, n);
  *length = (int)n - 1;
  return line;
}

static void read_pairs(const char *path) {
  FILE *file = fopen(path, "r");
  if (!file) fail("cannot open the file of pairs");
  size_t capacity = 0;
  for (;;) {
    pair_t pair = {0};
    pair.query = read_sequence(file, '>', &pair.query_len);
    if (!pair.query) break;
    pair.ref = read_sequence(file, '<', &pair.ref_len);
    if (!pair.ref) fail("the last reference is missing");
    if (n_pairs == capacity) {
      capacity = capacity ? 2 * capacity : 1024;
      pairs = realloc(pairs, capacity * sizeof *pairs);
      if (!pairs) fail("out of memory");
    }
    pairs[n_pairs++] = pair;
  }
  fclose(file);
}

static void *work(void *unused) {
  (void)unused;
  wavefront_aligner_t *aligner = wavefront_aligner_new(&attributes);
  for (;;) {
    pthread_barrier_wait(&begin);
    if (is_over) break;
    for (;;) {
      size_t first = atomic_fetch_add(&next_pair, chunk);
      if (first >= n_pairs) break;
      size_t last = first + chunk < n_pairs ? first + chunk : n_pairs;
      for (size_t i = first; i < last; ++i) {
        pair_t *pair = pairs + i;
        if (wavefront_align(aligner, pair->query, pair->query_len, pair->ref, pair->ref_len) !=
            WF_STATUS_ALG_COMPLETED)
          fail("a pair was not aligned");
        pair->score = aligner->cigar->score;
      }
    }
    pthread_barrier_wait(&end);
  }
  wavefront_aligner_delete(aligner);
  return NULL;
}

int main(int argc, char **argv) {
  if (argc < 4) fail("PAIRS.seq THREADS edit|affine [MISMATCH GAP_OPEN GAP_EXTEND] are expected");
  int n_threads = atoi(argv[2]);
  if (n_threads < 1 || n_threads > MOST_THREADS) fail("a number of threads is expected");
  attributes = wavefront_aligner_attr_default;
  attributes.alignment_scope = compute_alignment;
  attributes.alignment_form.span = alignment_end2end;
  attributes.heuristic.strategy = wf_heuristic_none;
  attributes.memory_mode = wavefront_memory_high; /* "fastest" */
  if (!strcmp(argv[3], "edit")) {
    attributes.distance_metric = edit;
  } else if (!strcmp(argv[3], "affine") && argc == 7) {
    attributes.distance_metric = gap_affine;
    attributes.affine_penalties.match = 0;
    attributes.affine_penalties.mismatch = atoi(argv[4]);
    attributes.affine_penalties.gap_opening = atoi(argv[5]);
    attributes.affine_penalties.gap_extension = atoi(argv[6]);
  } else {
    fail("edit, or affine and three penalties, are expected");
  }
  read_pairs(argv[1]);
  chunk = n_pairs / ((size_t)n_threads * CHUNKS_A_THREAD) + 1;
  pthread_barrier_init(&begin, NULL, n_threads + 1);
  pthread_barrier_init(&end, NULL, n_threads + 1);
  pthread_t threads[MOST_THREADS];
  for (int t = 0; t < n_threads; ++t)
    if (pthread_create(threads + t, NULL, work, NULL)) fail("cannot start a thread");
  for (char line[16]; fgets(line, sizeof line, stdin);) {
    struct timespec from, to;
    next_pair = 0;
    clock_gettime(CLOCK_MONOTONIC, &from);
    pthread_barrier_wait(&begin);
    pthread_barrier_wait(&end);
    clock_gettime(CLOCK_MONOTONIC, &to);
    printf("%.9f\n", (double)(to.tv_sec - from.tv_sec) + 1e-9 * (double)(to.tv_nsec - from.tv_nsec));
    fflush(stdout);
  }
  is_over = 1;
  pthread_barrier_wait(&begin);
  for (int t = 0; t < n_threads; ++t) pthread_join(threads[t], NULL);
  for (size_t i = 0; i < n_pairs; ++i) printf("%d\n", pairs[i].score);
  return 0;
}
