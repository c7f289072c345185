// Writes what a device does, a line for each kernel and copy, as CUPTI tells it. Loaded into a program
// by CUDA_INJECTION64_PATH; see device_timeline.py, which reads the file that DEVICE_TRACE names.
#include <cupti.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>

static FILE *trace;
static std::mutex writing;
static const size_t kBufferBytes = 8 << 20;

static void new_buffer(uint8_t **buffer, size_t *size, size_t *most_records) {
  *size = kBufferBytes;
  *buffer = static_cast<uint8_t *>(aligned_alloc(64, kBufferBytes));
  *most_records = 0;  // as many as fit
}

static void write_buffer(CUcontext, uint32_t, uint8_t *buffer, size_t, size_t n_valid) {
  std::lock_guard<std::mutex> lock(writing);
  CUpti_Activity *record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, n_valid, &record) == CUPTI_SUCCESS) {
    if (record->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
      auto kernel = reinterpret_cast<CUpti_ActivityKernel9 *>(record);
      fprintf(trace, "kernel\t%llu\t%llu\t%u\t%d\t%.100s\n",
              static_cast<unsigned long long>(kernel->start),
              static_cast<unsigned long long>(kernel->end), kernel->streamId, kernel->gridX,
              kernel->name);
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
      auto copy = reinterpret_cast<CUpti_ActivityMemcpy5 *>(record);
      fprintf(trace, "copy\t%llu\t%llu\t%u\t%llu\t%d\n",
              static_cast<unsigned long long>(copy->start),
              static_cast<unsigned long long>(copy->end), copy->streamId,
              static_cast<unsigned long long>(copy->bytes), static_cast<int>(copy->copyKind));
    }
  }
  free(buffer);
}

static void finish() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  std::lock_guard<std::mutex> lock(writing);
  fflush(trace);
}

extern "C" int InitializeInjection(void) {
  const char *path = getenv("DEVICE_TRACE");
  trace = path == nullptr ? nullptr : fopen(path, "w");
  if (trace == nullptr) return 0;
  cuptiActivityRegisterCallbacks(new_buffer, write_buffer);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
  atexit(finish);
  return 1;
}
