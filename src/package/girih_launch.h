/* Launches what `girih build` made, with nothing but the CUDA driver: no compiler, no run-time library, no cuda.h.
 * Link with -ldl where the C library does not hold dlopen. All functions return 0, or a message in girih_error().
 * A prepared launch may be run as often as wanted, from one thread at a time, and captured in a CUDA graph. */
#ifndef GIRIH_LAUNCH_H
#define GIRIH_LAUNCH_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum girih_role { GIRIH_INPUT, GIRIH_INOUT, GIRIH_OUTPUT, GIRIH_WORKSPACE, GIRIH_CONSTANT, GIRIH_FAULT };
enum girih_kind { GIRIH_BUFFER, GIRIH_SCALAR, GIRIH_VALUE, GIRIH_COUNTER, GIRIH_MAP };
enum girih_what { GIRIH_LAUNCH, GIRIH_FILL, GIRIH_COPY, GIRIH_REPEAT };

/* `argument` is the place among the caller's addresses, -1 for memory of the launch's own, at `offset`. */
typedef struct { const char *name; int role; int64_t bytes; int argument; int64_t offset; const unsigned char *data; int align; } girih_buffer;
typedef struct { const char *name; unsigned grid[3], block[3], cluster[3], shared; } girih_kernel;
typedef struct {
    int buffer, dtype, rank, swizzle;
    int64_t offset;
    uint64_t dims[5], strides[4];
    unsigned extent[5];
    int pixels, lower[3], upper[3];
    unsigned step[5];
    int64_t bytes;
} girih_map;
typedef struct { int kind; int index; uint64_t value; } girih_arg;
/* launch: a = kernel, args; fill: a = buffer, b = byte; copy: a to b; repeat: a times, the b steps that follow. */
typedef struct { int what; int64_t a, b; int count; const girih_arg *args; } girih_step;
typedef struct {
    const char *name, *cubin;
    const int64_t *sizes;
    int buffers, kernels, maps, steps, fault;
    const girih_buffer *buffer;
    const girih_kernel *kernel;
    const girih_map *map;
    const girih_step *step;
    int64_t workspace;
} girih_bucket;
typedef struct { const char *op; int sizes, arguments, scalars, buckets; const char *const *size_names; const girih_bucket *bucket; } girih_package;

typedef struct {
    void *library;
    int (*Init)(unsigned);
    int (*DriverGetVersion)(int *);
    int (*CtxGetCurrent)(void **);
    int (*CtxSetCurrent)(void *);
    int (*DeviceGet)(int *, int);
    int (*DevicePrimaryCtxRetain)(void **, int);
    int (*ModuleLoad)(void **, const char *);
    int (*ModuleUnload)(void *);
    int (*ModuleGetFunction)(void **, void *, const char *);
    int (*FuncSetAttribute)(void *, int, int);
    int (*MemAlloc)(uint64_t *, size_t);
    int (*MemFree)(uint64_t);
    int (*MemcpyHtoD)(uint64_t, const void *, size_t);
    int (*MemcpyDtoH)(void *, uint64_t, size_t);
    int (*MemcpyDtoDAsync)(uint64_t, uint64_t, size_t, void *);
    int (*MemsetD8Async)(uint64_t, unsigned char, size_t, void *);
    int (*LaunchKernelEx)(const void *, void *, void **, void **);
    int (*StreamSynchronize)(void *);
    int (*GetErrorString)(int, const char **);
    int (*TensorMapEncodeTiled)(void *, int, unsigned, void *, const uint64_t *, const uint64_t *, const unsigned *, const unsigned *, int, int, int, int);
    int (*TensorMapEncodeIm2col)(void *, int, unsigned, void *, const uint64_t *, const uint64_t *, const int *, const int *, unsigned, unsigned, const unsigned *, int, int, int, int);
} girih_driver;

typedef struct { char opaque[128]; } girih_tensor_map;
typedef struct {
    const girih_package *package;
    girih_driver cuda;
    char dir[1024];
} girih_op;
typedef struct {
    girih_op *op;
    const girih_bucket *bucket;
    void *module;
    void **function;
    uint64_t workspace, *address, *scalar;
    girih_tensor_map *map;
    void *aligned;
} girih_prepared;

static char girih_message[512];
static inline const char *girih_error(void) { return girih_message; }
static inline int girih_fail(const char *what, const char *why) {
    snprintf(girih_message, sizeof girih_message, "%s: %s", what, why ? why : "failed");
    return 1;
}
static inline int girih_check(const girih_driver *d, const char *call, int code) {
    const char *text = 0;
    if (!code) return 0;
    if (d->GetErrorString) d->GetErrorString(code, &text);
    return girih_fail(call, text);
}

static inline int girih_load_driver(girih_driver *d) {
    static const char *const names[] = {
        "cuInit", "cuDriverGetVersion", "cuCtxGetCurrent", "cuCtxSetCurrent", "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuModuleLoad",
        "cuModuleUnload", "cuModuleGetFunction", "cuFuncSetAttribute", "cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyHtoD_v2",
        "cuMemcpyDtoH_v2", "cuMemcpyDtoDAsync_v2", "cuMemsetD8Async", "cuLaunchKernelEx", "cuStreamSynchronize", "cuGetErrorString",
        "cuTensorMapEncodeTiled", "cuTensorMapEncodeIm2col" };
    void **slot = (void **)&d->Init;
    d->library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!d->library) return girih_fail("no CUDA driver", dlerror());
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        slot[i] = dlsym(d->library, names[i]);
        if (!slot[i]) return girih_fail("the CUDA driver is too old: it lacks", names[i]);
    }
    return girih_check(d, "cuInit", d->Init(0));
}

/* Opens the folder that `girih build` wrote. Uses the current context, or makes the first device's primary one current. */
static inline girih_op *girih_open(const girih_package *package, const char *dir) {
    girih_op *op = (girih_op *)calloc(1, sizeof *op);
    void *context = 0;
    int device = 0;
    if (!op) return girih_fail("girih_open", "out of memory"), (girih_op *)0;
    op->package = package;
    snprintf(op->dir, sizeof op->dir, "%s", dir);
    if (girih_load_driver(&op->cuda) || girih_check(&op->cuda, "cuCtxGetCurrent", op->cuda.CtxGetCurrent(&context))) return free(op), (girih_op *)0;
    if (!context && (girih_check(&op->cuda, "cuDeviceGet", op->cuda.DeviceGet(&device, 0)) ||
                     girih_check(&op->cuda, "cuDevicePrimaryCtxRetain", op->cuda.DevicePrimaryCtxRetain(&context, device)) ||
                     girih_check(&op->cuda, "cuCtxSetCurrent", op->cuda.CtxSetCurrent(context))))
        return free(op), (girih_op *)0;
    return op;
}

static inline const girih_bucket *girih_find(const girih_package *p, const int64_t *sizes) {
    for (int i = 0; i < p->buckets; i++)
        if (!memcmp(p->bucket[i].sizes, sizes, sizeof(int64_t) * (size_t)p->sizes)) return &p->bucket[i];
    /* The sizes that there are, as many as a message holds. */
    char text[400];
    size_t used = (size_t)snprintf(text, sizeof text, "no bucket for these sizes (kernels hold for exact ones); built for");
    for (int i = 0; i < p->buckets && used < sizeof text; i++)
        for (int s = 0; s < p->sizes && used < sizeof text; s++)
            used += (size_t)snprintf(text + used, sizeof text - used, "%s%s=%lld", s ? " " : i ? ", " : " ", p->size_names[s], (long long)p->bucket[i].sizes[s]);
    girih_fail(p->op, text);
    return 0;
}

static inline void girih_free(girih_prepared *r) {
    if (!r) return;
    if (r->workspace) r->op->cuda.MemFree(r->workspace);
    if (r->module) r->op->cuda.ModuleUnload(r->module);
    free(r->function); free(r->address); free(r->scalar); free(r->aligned); free(r);
}

static inline int girih_encode(girih_prepared *r, const girih_map *m, girih_tensor_map *to) {
    girih_driver *d = &r->op->cuda;
    void *at = (void *)(uintptr_t)(r->address[m->buffer] + (uint64_t)m->offset);
    int version = 0;
    if (!m->pixels)
        return girih_check(d, "cuTensorMapEncodeTiled", d->TensorMapEncodeTiled(to, m->dtype, (unsigned)m->rank, at, m->dims, m->strides, m->extent, m->step, 0, m->swizzle, 3, 0));
    if (girih_check(d, "cuTensorMapEncodeIm2col", d->TensorMapEncodeIm2col(to, m->dtype, (unsigned)m->rank, at, m->dims, m->strides, m->lower, m->upper, m->extent[0], m->extent[1], m->step, 0, m->swizzle, 3, 0)))
        return 1;
    /* Drivers up to 13.1 set a bit that must be clear for small tensors. */
    d->DriverGetVersion(&version);
    if (version <= 13010 && m->bytes < (1 << 17)) ((uint64_t *)to)[1] &= ~(1ull << 21);
    return 0;
}

/* Binds device addresses (inputs, inouts and results, in the header's order) and scalars (their bits, in its order). */
static inline girih_prepared *girih_prepare(girih_op *op, const int64_t *sizes, const uint64_t *arguments, const uint64_t *scalars) {
    const girih_bucket *b = girih_find(op->package, sizes);
    girih_driver *d = &op->cuda;
    girih_prepared *r;
    char path[2048];
    if (!b || !(r = (girih_prepared *)calloc(1, sizeof *r))) return 0;
    r->op = op;
    r->bucket = b;
    r->function = (void **)calloc((size_t)b->kernels + 1, sizeof(void *));
    r->address = (uint64_t *)calloc((size_t)b->buffers + 1, sizeof(uint64_t));
    r->scalar = (uint64_t *)calloc((size_t)op->package->scalars + 1, sizeof(uint64_t));
    r->aligned = malloc(((size_t)b->maps + 1) * sizeof(girih_tensor_map) + 64);
    if (!r->function || !r->address || !r->scalar || !r->aligned) return girih_fail(op->package->op, "out of memory"), girih_free(r), (girih_prepared *)0;
    r->map = (girih_tensor_map *)(((uintptr_t)r->aligned + 63) & ~(uintptr_t)63);
    for (int i = 0; i < op->package->scalars; i++) r->scalar[i] = scalars[i];
    snprintf(path, sizeof path, "%s/%s", op->dir, b->cubin);
    if (girih_check(d, path, d->ModuleLoad(&r->module, path))) return girih_free(r), (girih_prepared *)0;
    for (int i = 0; i < b->kernels; i++) {
        if (girih_check(d, b->kernel[i].name, d->ModuleGetFunction(&r->function[i], r->module, b->kernel[i].name))) return girih_free(r), (girih_prepared *)0;
        if (b->kernel[i].shared && girih_check(d, "cuFuncSetAttribute", d->FuncSetAttribute(r->function[i], 8, (int)b->kernel[i].shared))) return girih_free(r), (girih_prepared *)0;
    }
    if (b->workspace && girih_check(d, "cuMemAlloc", d->MemAlloc(&r->workspace, (size_t)b->workspace))) return girih_free(r), (girih_prepared *)0;
    for (int i = 0; i < b->buffers; i++) {
        const girih_buffer *f = &b->buffer[i];
        static const unsigned char none[32];
        r->address[i] = f->argument >= 0 ? arguments[f->argument] : r->workspace + (uint64_t)f->offset;
        if (f->argument >= 0 && f->bytes && (!r->address[i] || r->address[i] % (uint64_t)f->align))
            return girih_fail(f->name, "its address is null or not aligned as the kernels need it"), girih_free(r), (girih_prepared *)0;
        if (f->data && girih_check(d, f->name, d->MemcpyHtoD(r->address[i], f->data, (size_t)f->bytes))) return girih_free(r), (girih_prepared *)0;
        if (f->role == GIRIH_FAULT && girih_check(d, f->name, d->MemcpyHtoD(r->address[i], none, sizeof none))) return girih_free(r), (girih_prepared *)0;
    }
    for (int i = 0; i < b->maps; i++)
        if (girih_encode(r, &b->map[i], &r->map[i])) return girih_free(r), (girih_prepared *)0;
    return r;
}

typedef struct { unsigned grid[3], block[3], shared; void *stream; void *attributes; unsigned count; } girih_config;
typedef struct { int id; char pad[4]; union { char bytes[64]; unsigned cluster[3]; } value; } girih_attribute;

static inline int girih_steps(girih_prepared *r, const girih_step *s, int64_t n, uint64_t counter, void *stream) {
    girih_driver *d = &r->op->cuda;
    for (int64_t i = 0; i < n; i++) {
        const girih_step *p = &s[i];
        if (p->what == GIRIH_FILL) {
            if (girih_check(d, "cuMemsetD8Async", d->MemsetD8Async(r->address[p->a], (unsigned char)p->b, (size_t)r->bucket->buffer[p->a].bytes, stream))) return 1;
        } else if (p->what == GIRIH_COPY) {
            if (girih_check(d, "cuMemcpyDtoDAsync", d->MemcpyDtoDAsync(r->address[p->b], r->address[p->a], (size_t)r->bucket->buffer[p->b].bytes, stream))) return 1;
        } else if (p->what == GIRIH_REPEAT) {
            for (int64_t k = 0; k < p->a; k++)
                if (girih_steps(r, s + i + 1, p->b, (uint64_t)k, stream)) return 1;
            i += p->b;
        } else {
            const girih_kernel *k = &r->bucket->kernel[p->a];
            uint64_t value[64];
            void *pointer[64];
            girih_config c;
            girih_attribute cluster;
            if (p->count > 64) return girih_fail(k->name, "too many arguments");
            for (int j = 0; j < p->count; j++) {
                const girih_arg *a = &p->args[j];
                pointer[j] = &value[j];
                switch (a->kind) {
                case GIRIH_BUFFER: value[j] = r->address[a->index]; break;
                case GIRIH_SCALAR: value[j] = r->scalar[a->index]; break;
                case GIRIH_VALUE: value[j] = a->value; break;
                case GIRIH_COUNTER: value[j] = counter; break;
                default: pointer[j] = &r->map[a->index];
                }
            }
            memset(&c, 0, sizeof c);
            memset(&cluster, 0, sizeof cluster);
            memcpy(c.grid, k->grid, sizeof c.grid);
            memcpy(c.block, k->block, sizeof c.block);
            c.shared = k->shared;
            c.stream = stream;
            if (k->cluster[0] * k->cluster[1] * k->cluster[2] > 1) {
                cluster.id = 4;
                memcpy(cluster.value.cluster, k->cluster, sizeof k->cluster);
                c.attributes = &cluster;
                c.count = 1;
            }
            if (girih_check(d, k->name, d->LaunchKernelEx(&c, r->function[p->a], pointer, 0))) return 1;
        }
    }
    return 0;
}

/* Starts the work on a stream (0: the default one) and returns at once. */
static inline int girih_run(girih_prepared *r, void *stream) { return girih_steps(r, r->bucket->step, r->bucket->steps, 0, stream); }

/* After the stream was waited for: whether a kernel met an index or value that is not allowed. */
static inline int girih_status(girih_prepared *r) {
    int64_t word[4] = {0, 0, 0, 0};
    char text[64];
    if (r->bucket->fault < 0) return 0;
    if (girih_check(&r->op->cuda, "cuMemcpyDtoH", r->op->cuda.MemcpyDtoH(word, r->address[r->bucket->fault], sizeof word))) return 1;
    if (!word[0]) return 0;
    snprintf(text, sizeof text, "fault %lld, value %lld", (long long)word[0] - 1, (long long)word[1]);
    return girih_fail(r->op->package->op, text);
}

#endif
