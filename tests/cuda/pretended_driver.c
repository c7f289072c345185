/* A libcuda.so.1 with one device, of compute capability PRETENDED_CAPABILITY, whose context the
 * driver refuses with the error PRETENDED_REFUSAL; cuInit returns PRETENDED_INIT. All other
 * functions refuse, too. Numbers of errors and attributes are those of CUDA's cuda.h. */
#include <stdlib.h>
#include <string.h>

static int number(const char *name) { const char *text = getenv(name); return text ? atoi(text) : 0; }
static int refuse(void) { return number("PRETENDED_REFUSAL"); }
static int init(unsigned flags) { return number("PRETENDED_INIT"); }
static int version(int *found) { *found = 13000; return 0; }
static int count(int *found) { *found = 1; return 0; }
static int device(int *found, int ordinal) { *found = ordinal; return 0; }
static int name(char *found, int size, int ordinal) { strncpy(found, "Pretended", size); return 0; }
static int uuid(char *found, int ordinal) { memset(found, 7, 16); return 0; }
static int context(void **found) { *found = NULL; return 0; }
static int error_name(int error, const char **found) {
    *found = error == 2 ? "CUDA_ERROR_OUT_OF_MEMORY" : error == 46 ? "CUDA_ERROR_DEVICE_UNAVAILABLE" : "other";
    return 0;
}
static int attribute(int *found, int which, int ordinal) {
    *found = which == 75 ? number("PRETENDED_CAPABILITY") : which == 76 ? 0 : 1;
    return 0;
}

int cuGetProcAddress_v2(const char *, void **, int, unsigned long long, int *);

static const struct { const char *name; void *function; } known[] = {
    {"cuInit", init}, {"cuDriverGetVersion", version}, {"cuDeviceGetCount", count},
    {"cuDeviceGet", device}, {"cuDeviceGetName", name}, {"cuDeviceGetUuid", uuid},
    {"cuDeviceGetAttribute", attribute}, {"cuCtxGetCurrent", context},
    {"cuGetErrorName", error_name}, {"cuGetErrorString", error_name},
    {"cuGetProcAddress", cuGetProcAddress_v2},
};

int cuGetProcAddress_v2(const char *wanted, void **function, int version, unsigned long long flags,
                        int *status) {
    *function = refuse;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(wanted, known[i].name) == 0) *function = known[i].function;
    if (status) *status = 0;
    return 0;
}
