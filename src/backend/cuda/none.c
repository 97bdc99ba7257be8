/* none.c - what a build without CUDA's compiler has instead of the backend. */
#include "backend/cuda.h"

static int none(struct lode_error *err) {
    return lode_fail(err, LODE_ERR_UNSUPPORTED, "--device cuda",
                     "this build has no CUDA: it was made without -Dcuda=enabled");
}

int lode_cuda_count(struct lode_error *why) {
    none(why);
    return 0;
}
int lode_cuda_info(int index, char name[256], uint64_t *memory, struct lode_error *err) {
    (void)index;
    *name = 0;
    *memory = 0;
    return none(err);
}
int lode_cuda_open(struct lode_cuda **out, int index, struct lode_error *err) {
    (void)index;
    *out = NULL;
    return none(err);
}
void lode_cuda_close(struct lode_cuda *c) { (void)c; }
int lode_cuda_can_join(struct lode_error *err) { return none(err); }
int lode_cuda_join(struct lode_backend *const *all, uint32_t n, struct lode_error *err) {
    (void)all;
    (void)n;
    return none(err);
}
void lode_cuda_befriend(const struct lode_cuda *a, const struct lode_cuda *b) {
    (void)a;
    (void)b;
}
const char *lode_cuda_name(const struct lode_cuda *c) {
    (void)c;
    return "";
}
bool lode_cuda_has_fast(const struct lode_cuda *c) {
    (void)c;
    return false;
}
bool lode_cuda_takes_floats(const struct lode_cuda *c, const struct lode_operand *w) {
    (void)c;
    (void)w;
    return false;
}
uint64_t lode_cuda_uploaded(const struct lode_cuda *c, double *seconds) {
    (void)c;
    *seconds = 0;
    return 0;
}
const char *lode_cuda_note(const struct lode_cuda *c) {
    (void)c;
    return "";
}
struct lode_tuning *lode_cuda_tuning(struct lode_cuda *c, struct lode_tuning_device *d) {
    (void)c;
    (void)d;
    return NULL;
}
bool lode_cuda_lost(struct lode_cuda *c) {
    (void)c;
    return false;
}
uint64_t lode_cuda_available(const struct lode_cuda *c) {
    (void)c;
    return 0;
}
int lode_cuda_speeds(struct lode_cuda *c, struct lode_device_speeds *out, struct lode_error *err) {
    (void)c;
    *out = (struct lode_device_speeds){0};
    return none(err);
}
int lode_cuda_bus_speed(struct lode_cuda *c, double *bus, struct lode_error *err) {
    (void)c;
    *bus = 0;
    return none(err);
}
int lode_cuda_check(const struct lode_cuda *c, const struct lode_node *n, bool float_act,
                    struct lode_error *err) {
    (void)c;
    (void)n;
    (void)float_act;
    return none(err);
}
uint64_t lode_cuda_weight_size(const struct lode_weight *w) { return w->size; }
int lode_cuda_load(struct lode_cuda *c, const struct lode_source *source,
                   const struct lode_weight *weights, uint32_t n, const uint16_t *uses, uint16_t bit,
                   int (*progress)(void *user, const char *what, uint64_t done, uint64_t total),
                   void *user, struct lode_error *err) {
    (void)c;
    (void)source;
    (void)weights;
    (void)n;
    (void)uses;
    (void)bit;
    (void)progress;
    (void)user;
    return none(err);
}
int lode_cuda_create(struct lode_backend **out, struct lode_cuda *c,
                     const struct lode_cuda_opts *opts, struct lode_error *err) {
    (void)c;
    (void)opts;
    *out = NULL;
    return none(err);
}
uint64_t lode_cuda_work_size(const struct lode_cuda_opts *opts) {
    (void)opts;
    return 0;
}
void lode_cuda_bring_grow(struct lode_cuda_bring_sizes *s, const struct lode_operand *w) {
    (void)s;
    (void)w;
}
uint64_t lode_cuda_bring_pinned(const struct lode_cuda_bring_sizes *s) {
    (void)s;
    return 0;
}
int lode_cuda_fetch_layers(struct lode_cuda *c, const struct lode_source *source, const struct lode_weight *weights,
                           const uint32_t *brought, uint32_t n, struct lode_error *err) {
    (void)c;
    (void)source;
    (void)weights;
    (void)brought;
    (void)n;
    (void)err;
    return 0;
}
bool lode_cuda_fetches_layers(const struct lode_cuda *c) {
    (void)c;
    return false;
}
uint64_t lode_cuda_brought(const struct lode_cuda *c) {
    (void)c;
    return 0;
}
int lode_cuda_experts_sizes(const struct lode_cuda *c, const struct lode_cuda_experts_opts *o,
                            struct lode_cuda_experts_sizes *out, struct lode_error *err) {
    (void)c;
    (void)o;
    *out = (struct lode_cuda_experts_sizes){0};
    return none(err);
}
int lode_cuda_keep_experts(struct lode_cuda *c, const struct lode_cuda_experts_opts *o, struct lode_error *err) {
    (void)c;
    (void)o;
    return none(err);
}
void lode_cuda_forget_experts(struct lode_cuda *c) { (void)c; }
bool lode_cuda_fetches_experts(const struct lode_cuda *c) {
    (void)c;
    return false;
}
void lode_cuda_count_experts(const struct lode_cuda *c, struct lode_profile *out) {
    (void)c;
    (void)out;
}
int lode_cuda_aside_create(struct lode_aside **out, struct lode_cuda *c, const struct lode_cuda_aside_opts *o,
                           struct lode_error *err) {
    (void)c;
    (void)o;
    *out = NULL;
    return none(err);
}
void lode_cuda_aside_size(const struct lode_cuda_aside_opts *o, uint64_t *device, uint64_t *host) {
    (void)o;
    *device = *host = 0;
}
