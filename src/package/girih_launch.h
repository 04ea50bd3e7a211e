/* Launches what `girih build` made, with nothing but the CUDA driver: no compiler, no run-time library, no cuda.h.
 * Link with -ldl where the C library does not hold dlopen. All functions return 0, or a message in girih_error().
 * A prepared launch may be run as often as wanted, from one thread at a time, and captured in a CUDA graph. */
#ifndef GIRIH_LAUNCH_H
#define GIRIH_LAUNCH_H

#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum girih_role { GIRIH_INPUT, GIRIH_INOUT, GIRIH_OUTPUT, GIRIH_WORKSPACE, GIRIH_CONSTANT, GIRIH_FAULT };
enum girih_kind { GIRIH_BUFFER, GIRIH_SCALAR, GIRIH_VALUE, GIRIH_COUNTER, GIRIH_MAP };
enum girih_what { GIRIH_LAUNCH, GIRIH_FILL, GIRIH_COPY, GIRIH_REPEAT };

/* A number that follows from the sizes: plus + times * product of (sizes[size] + add) / per, at most `most`; or the value for
 * the bucket's first sizes, second, and so on. With a negative number of factors there is none. */
typedef struct { int size; int64_t add, per; } girih_factor;
typedef struct { int64_t plus, times, most; int factors; girih_factor factor[4]; const int64_t *table; } girih_law;
/* Such a number's place: a table of the bucket's, its row, where it lies in the row, and its bytes. */
enum girih_table { GIRIH_BUFFERS, GIRIH_KERNELS, GIRIH_MAPS, GIRIH_ARGS, GIRIH_STEPS, GIRIH_TABLES };
typedef struct { int table, row; size_t at; int bytes; girih_law law; } girih_varying;

/* `argument` is the place among the caller's addresses, -1 for memory of the launch's own. */
typedef struct { const char *name; int role; int64_t bytes; int argument; const unsigned char *data; int align; } girih_buffer;
typedef struct { const char *name; unsigned grid[3], block[3], cluster[3], shared; int early; } girih_kernel;
typedef struct {
    int buffer, dtype, rank, swizzle;
    int64_t offset;
    uint64_t dims[5], strides[4];
    unsigned extent[5];
    int pixels, lower[3], upper[3];
    unsigned step[5];
    int64_t element;
} girih_map;
typedef struct { int kind; int index; uint64_t value; } girih_arg;
/* launch: a = kernel, `count` arguments from `first` on; fill: a = buffer, b = byte; copy: a to b; repeat: a times, the b steps that follow. */
typedef struct { int what; int64_t a, b; int count, first; } girih_step;
typedef struct {
    const char *name, *cubin;
    int buffers, kernels, maps, steps, args, varying, fault;
    const girih_buffer *buffer;
    const girih_kernel *kernel;
    const girih_map *map;
    const girih_step *step;
    const girih_arg *arg;
    const girih_varying *vary;
} girih_bucket;
/* Least and greatest of each size, and the bucket of each combination, the last size changing fastest: -1 where there is none; one
 * stands for all. */
typedef struct { const int64_t *sizes; const int16_t *bucket; int64_t buckets; const girih_law *derived; } girih_range;
typedef struct {
    const char *op;
    int sizes, arguments, scalars, ranges, buckets;
    const char *const *size_names;
    const girih_range *range;
    const girih_bucket *bucket;
} girih_package;

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
/* A bucket as it stands at some sizes, with where its memory lies in a workspace. */
typedef struct {
    const girih_bucket *bucket;
    girih_buffer *buffer;
    girih_kernel *kernel;
    girih_map *map;
    girih_arg *arg;
    girih_step *step;
    int64_t *offset, workspace;
} girih_sized;
typedef struct {
    girih_op *op;
    girih_sized at;
    void *module;
    void **function;
    uint64_t workspace, *address, *scalar;
    girih_tensor_map *map;
    void *aligned;
} girih_prepared;

static char girih_message[768];
static inline const char *girih_error(void) { return girih_message; }
static inline int girih_fail(const char *what, const char *why) {
    snprintf(girih_message, sizeof girih_message, "%.240s: %.500s", what, why ? why : "failed");
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

static inline int64_t girih_value(const girih_law *l, const int64_t *sizes, int64_t place) {
    uint64_t product = (uint64_t)l->times;
    int64_t value;
    if (l->table) return l->table[place];
    for (int i = 0; i < l->factors; i++) {
        int64_t n = sizes[l->factor[i].size] + l->factor[i].add, per = l->factor[i].per;
        product *= (uint64_t)(n / per - (n % per < 0));
    }
    value = (int64_t)((uint64_t)l->plus + product);
    return value < l->most ? value : l->most;
}

/* Which combination of a range these sizes are; -1 outside. */
static inline int64_t girih_place(const girih_package *p, const girih_range *r, const int64_t *sizes) {
    int64_t place = 0;
    for (int i = 0; i < p->sizes; i++) {
        int64_t low = r->sizes[2 * i], high = r->sizes[2 * i + 1];
        if (sizes[i] < low || sizes[i] > high) return -1;
        if (!r->derived || r->derived[i].factors < 0) place = place * (high - low + 1) + sizes[i] - low;
    }
    return place;
}

static inline int girih_at(const girih_range *r, int64_t place) { return r->bucket[r->buckets == 1 ? 0 : place]; }

/* Combinations before a place that have a bucket, or this bucket. */
static inline int64_t girih_before(const girih_range *r, int64_t place, int bucket) {
    int64_t count = 0;
    if (r->buckets == 1) return place;
    for (int64_t i = 0; i < place; i++) count += bucket < 0 ? r->bucket[i] >= 0 : r->bucket[i] == bucket;
    return count;
}

/* The range and bucket for these sizes, and which of the bucket's sizes they are if that is asked; 0, and no message, if there is none.
 * A launch's way: it takes some nanoseconds. */
static inline const girih_bucket *girih_look(const girih_package *p, const int64_t *sizes, int64_t *which) {
    for (int i = 0; i < p->ranges; i++) {
        const girih_range *r = &p->range[i];
        int64_t place = girih_place(p, r, sizes);
        int bucket = place < 0 ? -1 : girih_at(r, place), right = 1;
        if (bucket < 0) continue;
        for (int s = 0; r->derived && s < p->sizes; s++)
            if (r->derived[s].factors >= 0)
                right &= girih_value(&r->derived[s], sizes, r->derived[s].table ? girih_before(r, place, -1) : 0) == sizes[s];
        if (!right) continue;
        if (which) *which = girih_before(r, place, bucket);
        return &p->bucket[bucket];
    }
    return 0;
}

/* The same, with a message that tells the ranges. */
static inline const girih_bucket *girih_find(const girih_package *p, const int64_t *sizes, int64_t *which) {
    const girih_bucket *found = girih_look(p, sizes, which);
    char text[500];
    size_t used = 0;
    if (found) return found;
#define GIRIH_SAY(...) used += used < sizeof text ? (size_t)snprintf(text + used, sizeof text - used, __VA_ARGS__) : 0
    for (int s = 0; s < p->sizes; s++) GIRIH_SAY("%s%s=%lld", s ? " " : "", p->size_names[s], (long long)sizes[s]);
    GIRIH_SAY(" is outside of what it was built for:");
    for (int i = 0; i < p->ranges; i++)
        for (int s = 0; s < p->sizes; s++) {
            long long low = p->range[i].sizes[2 * s], high = p->range[i].sizes[2 * s + 1];
            GIRIH_SAY(low == high ? "%s%s=%lld" : "%s%s=%lld..=%lld", s ? " " : i ? ", " : " ", p->size_names[s], low, high);
        }
#undef GIRIH_SAY
    girih_fail(p->op, text);
    return 0;
}

static inline void girih_unsize(girih_sized *at) {
    free(at->buffer); free(at->kernel); free(at->map); free(at->arg); free(at->step); free(at->offset);
    memset(at, 0, sizeof *at);
}

static inline void *girih_copy(const void *from, int rows, size_t each) {
    void *to = calloc((size_t)rows + 1, each);
    if (to) memcpy(to, from, (size_t)rows * each);
    return to;
}

/* The bucket for these sizes with its numbers as they are there. Needs no driver. */
static inline int girih_size(const girih_package *p, const int64_t *sizes, girih_sized *at) {
    int64_t which = 0;
    const girih_bucket *b = girih_find(p, sizes, &which);
    char *table[GIRIH_TABLES];
    static const size_t each[GIRIH_TABLES] = { sizeof(girih_buffer), sizeof(girih_kernel), sizeof(girih_map), sizeof(girih_arg), sizeof(girih_step) };
    memset(at, 0, sizeof *at);
    if (!b) return 1;
    at->bucket = b;
    table[GIRIH_BUFFERS] = (char *)(at->buffer = (girih_buffer *)girih_copy(b->buffer, b->buffers, sizeof *at->buffer));
    table[GIRIH_KERNELS] = (char *)(at->kernel = (girih_kernel *)girih_copy(b->kernel, b->kernels, sizeof *at->kernel));
    table[GIRIH_MAPS] = (char *)(at->map = (girih_map *)girih_copy(b->map, b->maps, sizeof *at->map));
    table[GIRIH_ARGS] = (char *)(at->arg = (girih_arg *)girih_copy(b->arg, b->args, sizeof *at->arg));
    table[GIRIH_STEPS] = (char *)(at->step = (girih_step *)girih_copy(b->step, b->steps, sizeof *at->step));
    at->offset = (int64_t *)calloc((size_t)b->buffers + 1, sizeof *at->offset);
    if (!at->buffer || !at->kernel || !at->map || !at->arg || !at->step || !at->offset) return girih_unsize(at), girih_fail(p->op, "out of memory");
    for (int i = 0; i < b->varying; i++) {
        const girih_varying *v = &b->vary[i];
        char *to = table[v->table] + (size_t)v->row * each[v->table] + v->at;
        int64_t value = girih_value(&v->law, sizes, which);
        unsigned narrow = (unsigned)value;
        if (v->bytes == 4) memcpy(to, &narrow, 4);
        else memcpy(to, &value, 8);
    }
    for (int i = 0; i < b->buffers; i++) {
        int64_t bytes = at->buffer[i].bytes < 32 ? 32 : at->buffer[i].bytes;
        at->offset[i] = at->workspace;
        if (at->buffer[i].argument < 0) at->workspace += (bytes + 255) / 256 * 256;
    }
    return 0;
}

static inline void girih_free(girih_prepared *r) {
    if (!r) return;
    if (r->workspace) r->op->cuda.MemFree(r->workspace);
    if (r->module) r->op->cuda.ModuleUnload(r->module);
    girih_unsize(&r->at);
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
    int64_t bytes = (int64_t)m->dims[0] * m->element;
    for (int i = 1; i < m->rank; i++) bytes += ((int64_t)m->dims[i] - 1) * (int64_t)m->strides[i - 1];
    if (version <= 13010 && bytes < (1 << 17)) ((uint64_t *)to)[1] &= ~(1ull << 21);
    return 0;
}

/* Binds device addresses (inputs, inouts and results, in the header's order) and scalars (their bits, in its order). */
static inline girih_prepared *girih_prepare(girih_op *op, const int64_t *sizes, const uint64_t *arguments, const uint64_t *scalars) {
    girih_driver *d = &op->cuda;
    girih_prepared *r = (girih_prepared *)calloc(1, sizeof *r);
    const girih_bucket *b;
    char path[2048];
    if (!r) return girih_fail(op->package->op, "out of memory"), (girih_prepared *)0;
    r->op = op;
    if (girih_size(op->package, sizes, &r->at)) return girih_free(r), (girih_prepared *)0;
    b = r->at.bucket;
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
    if (r->at.workspace && girih_check(d, "cuMemAlloc", d->MemAlloc(&r->workspace, (size_t)r->at.workspace))) return girih_free(r), (girih_prepared *)0;
    for (int i = 0; i < b->buffers; i++) {
        const girih_buffer *f = &r->at.buffer[i];
        static const unsigned char none[32];
        r->address[i] = f->argument >= 0 ? arguments[f->argument] : r->workspace + (uint64_t)r->at.offset[i];
        if (f->argument >= 0 && f->bytes && (!r->address[i] || r->address[i] % (uint64_t)f->align))
            return girih_fail(f->name, "its address is null or not aligned as the kernels need it"), girih_free(r), (girih_prepared *)0;
        if (f->data && girih_check(d, f->name, d->MemcpyHtoD(r->address[i], f->data, (size_t)f->bytes))) return girih_free(r), (girih_prepared *)0;
        if (f->role == GIRIH_FAULT && girih_check(d, f->name, d->MemcpyHtoD(r->address[i], none, sizeof none))) return girih_free(r), (girih_prepared *)0;
    }
    for (int i = 0; i < b->maps; i++)
        if (girih_encode(r, &r->at.map[i], &r->map[i])) return girih_free(r), (girih_prepared *)0;
    return r;
}

typedef struct { unsigned grid[3], block[3], shared; void *stream; void *attributes; unsigned count; } girih_config;
typedef struct { int id; char pad[4]; union { char bytes[64]; unsigned cluster[3]; } value; } girih_attribute;

static inline int girih_steps(girih_prepared *r, const girih_step *s, int64_t n, uint64_t counter, void *stream) {
    girih_driver *d = &r->op->cuda;
    for (int64_t i = 0; i < n; i++) {
        const girih_step *p = &s[i];
        if (p->what == GIRIH_FILL) {
            if (girih_check(d, "cuMemsetD8Async", d->MemsetD8Async(r->address[p->a], (unsigned char)p->b, (size_t)r->at.buffer[p->a].bytes, stream))) return 1;
        } else if (p->what == GIRIH_COPY) {
            if (girih_check(d, "cuMemcpyDtoDAsync", d->MemcpyDtoDAsync(r->address[p->b], r->address[p->a], (size_t)r->at.buffer[p->b].bytes, stream))) return 1;
        } else if (p->what == GIRIH_REPEAT) {
            for (int64_t k = 0; k < p->a; k++)
                if (girih_steps(r, s + i + 1, p->b, (uint64_t)k, stream)) return 1;
            i += p->b;
        } else {
            const girih_kernel *k = &r->at.kernel[p->a];
            uint64_t value[64];
            void *pointer[64];
            girih_config c;
            girih_attribute attribute[2];
            if (p->count > 64) return girih_fail(k->name, "too many arguments");
            for (int j = 0; j < p->count; j++) {
                const girih_arg *a = &r->at.arg[p->first + j];
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
            memset(attribute, 0, sizeof attribute);
            c.attributes = attribute;
            memcpy(c.grid, k->grid, sizeof c.grid);
            memcpy(c.block, k->block, sizeof c.block);
            c.shared = k->shared;
            c.stream = stream;
            if (k->cluster[0] * k->cluster[1] * k->cluster[2] > 1) {
                attribute[c.count].id = 4;
                memcpy(attribute[c.count++].value.cluster, k->cluster, sizeof k->cluster);
            }
            if (k->early) {
                attribute[c.count].id = 6;
                attribute[c.count++].value.cluster[0] = 1;
            }
            /* An empty grid is no launch. */
            if (!k->grid[0] || !k->grid[1] || !k->grid[2]) continue;
            if (girih_check(d, k->name, d->LaunchKernelEx(&c, r->function[p->a], pointer, 0))) return 1;
        }
    }
    return 0;
}

/* Starts the work on a stream (0: the default one) and returns at once. */
static inline int girih_run(girih_prepared *r, void *stream) { return girih_steps(r, r->at.step, r->at.bucket->steps, 0, stream); }

/* After the stream was waited for: whether a kernel met an index or value that is not allowed. */
static inline int girih_status(girih_prepared *r) {
    int64_t word[4] = {0, 0, 0, 0};
    char text[64];
    if (r->at.bucket->fault < 0) return 0;
    if (girih_check(&r->op->cuda, "cuMemcpyDtoH", r->op->cuda.MemcpyDtoH(word, r->address[r->at.bucket->fault], sizeof word))) return 1;
    if (!word[0]) return 0;
    snprintf(text, sizeof text, "fault %lld, value %lld", (long long)word[0] - 1, (long long)word[1]);
    return girih_fail(r->op->package->op, text);
}

#endif
