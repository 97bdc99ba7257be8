#include "model/model.h"

#include "backend/cuda.h"
#include "base/alloc.h"
#include "model/devices.h"
#include "model/groups.h"
#include "model/profile.h"
#include "model/shard.h"
#include "store/file_store.h"
#include "store/stream.h"
#include "text/tokenizer.h"

#include <stdio.h>

#define ISA_NAME(name, ...) " " #name
#define NUMERICS_NAME(name) #name,
#define NUMERICS_LISTED(name) " " #name

static int choose_isa(struct lode_model *m, const char *wanted, struct lode_error *err) {
    enum lode_isa isa = lode_isa_best();
    if (wanted) {
        const int named = lode_isa_from_name(wanted);
        if (named < 0)
            return lode_fail(err, LODE_ERR_ARG, "--isa",
                             "'%s' is no instruction set; there are" LODE_ISA_LIST(ISA_NAME), wanted);
        if (!lode_isa_usable((enum lode_isa)named))
            return lode_fail(err, LODE_ERR_UNSUPPORTED, "--isa",
                             "this computer can't run %s; the best it has is %s", wanted,
                             lode_isa_name(isa));
        isa = (enum lode_isa)named;
    }
    m->isa = isa;
    m->opts.isa = NULL; /* the caller's string */
    return 0;
}

static int choose_numerics(struct lode_model *m, const char *wanted, struct lode_error *err) {
    static const char *const names[] = {LODE_NUMERICS_LIST(NUMERICS_NAME)};
    const size_t n = sizeof names / sizeof *names;
    size_t i = 0;
    while (wanted && i < n && strcmp(wanted, names[i]) != 0)
        i++;
    if (i == n)
        return lode_fail(err, LODE_ERR_ARG, "--numerics", "'%.40s' is none of" LODE_NUMERICS_LIST(NUMERICS_LISTED), wanted);
    m->wanted = (enum lode_numerics)i;
    if (m->wanted == LODE_NUMERICS_fast)
        m->fast = lode_fast_best(m->isa);
    snprintf(m->numerics, sizeof m->numerics, m->fast ? "fast (%s)" : "exact",
             lode_fast_name(m->fast));
    m->opts.numerics = NULL; /* the caller's string */
    return 0;
}

/* Files that belong to a model, and are none: by general.type, or as older ones show. */
static int check_kind(const struct lode_model *m, struct lode_error *err) {
    struct lode_str type = {0}, of = LODE_STR("?"), adapter;
    lode_source_str(m->source, "general.type", &type);
    lode_source_str(m->source, "general.architecture", &of);
    const bool lora = lode_source_str(m->source, "adapter.type", &adapter);
    const int n = (int)(of.len < 60 ? of.len : 60);
    if (lora || lode_str_eqz(type, "adapter"))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, m->source->path,
                         "this is an adapter (LoRA) for a model of architecture %.*s, and no model: "
                         "name the model; adapters cannot be applied yet",
                         n, of.data);
    if (lode_str_eqz(type, "mmproj") || lode_str_eqz(of, "clip"))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, m->source->path,
                         "this is the part of a model that sees or hears (mmproj): name the file "
                         "with its language model");
    if (lode_str_eqz(type, "imatrix"))
        return lode_fail(err, LODE_ERR_UNSUPPORTED, m->source->path,
                         "this is an importance matrix, and no model: it is for lode convert");
    return 0;
}

static int unknown_arch(const struct lode_model *m, struct lode_error *err) {
    char list[512] = "";
    size_t at = 0;
    for (const char *const *a = lode_model_archs(); *a; a++)
        at += (size_t)snprintf(list + at, at < sizeof list ? sizeof list - at : 0, "%s%s",
                               at ? ", " : "", *a);
    const char *arch = m->source->arch;
    if (!*arch)
        return lode_fail(err, LODE_ERR_FORMAT, m->source->path,
                         "general.architecture is missing: this is no language model; lode runs %s",
                         list);
    return lode_fail(err, LODE_ERR_UNSUPPORTED, m->source->path,
                     "architecture '%.60s' is not supported, and its tensors are not those of a "
                     "standard decoder; lode runs %s",
                     arch, list);
}

/* A model may have no vocabulary (embedders' backbones, tests); one that it has must be understood. */
static int load_tokenizer(struct lode_model *m, struct lode_error *err) {
    struct lode_str kind;
    if (!m->source->gguf) {
        const int rc = lode_tokenizer_load(&m->tokenizer, m->source->path, err);
        return rc == LODE_ERR_MISSING ? 0 : rc;
    }
    if (!lode_source_str(m->source, "tokenizer.ggml.model", &kind) || lode_str_eqz(kind, "none") ||
        lode_str_eqz(kind, "no_vocab"))
        return 0;
    return lode_tokenizer_from_gguf(&m->tokenizer, m->source->gguf, err);
}

/* The source's, the architecture's, the devices'. */
static int keep_notes(struct lode_model *m, const char *note, struct lode_error *err) {
    struct lode_buf b = {0};
    const char *before = m->notes ? m->notes : m->source->notes;
    if (!*note)
        return 0;
    if (!lode_buf_addf(&b, "%s%s%s", before, *before ? "\n" : "", note))
        return lode_fail_nomem(err, "notes");
    lode_free(m->notes);
    m->notes = b.data;
    return 0;
}

/* A token of fewer or more experts is another token. */
static int note_experts(struct lode_model *m, struct lode_error *err) {
    char note[128];
    if (m->hp.n_experts_used == m->hp.n_experts_trained)
        return 0;
    snprintf(note, sizeof note, "--experts: each token uses %u experts of a layer, %u in training: answers are others",
             m->hp.n_experts_used, m->hp.n_experts_trained);
    return keep_notes(m, note, err);
}

/* The lists of opts, which are the caller's strings. */
static int keep_lists(struct lode_model *m, struct lode_error *err) {
    struct lode_model_opts *o = &m->opts;
    m->any_device = !o->device || strcmp(o->device, "auto") == 0;
    if (o->tensor_devices)
        m->tensor_devices = lode_strndup(o->tensor_devices, strlen(o->tensor_devices));
    if (o->tensor_split)
        m->tensor_split = lode_strndup(o->tensor_split, strlen(o->tensor_split));
    const bool ok = (m->tensor_devices || !o->tensor_devices) && (m->tensor_split || !o->tensor_split);
    o->tensor_devices = o->tensor_split = NULL;
    return ok ? 0 : lode_fail_nomem(err, "options");
}

/* All but the weights. */
static int open_model(struct lode_model *m, const char *path, struct lode_error *err) {
    LODE_TRY(lode_source_open(&m->source, path, !m->opts.no_mmap, err));
    LODE_TRY(check_kind(m, err));
    LODE_TRY(load_tokenizer(m, err));
    if (m->opts.vocab_only)
        return lode_model_describe(m, err);
    m->arch = lode_arch_find(m->source->arch);
    if (!m->arch && lode_arch_fits(m->source))
        m->arch = &lode_arch_standard;
    if (!m->arch)
        return unknown_arch(m, err);
    struct lode_build b = {.source = m->source, .arch = m->arch, .experts = m->opts.experts};
    int rc = lode_build_model(&b, m->graphs, err);
    lode_free(b.weight_of);
    m->hp = b.hp;
    m->kv = b.kv;
    m->state = b.state;
    m->n_kept = b.hp.n_layers;
    m->weights = b.weights;
    m->n_weights = b.n_weights;
    LODE_TRY(rc);
    LODE_TRY(keep_notes(m, b.note, err));
    LODE_TRY(note_experts(m, err));
    const struct lode_plan_opts plan = {.float_act = m->opts.float_act};
    for (int i = 0; i < LODE_STAGES; i++)
        LODE_TRY(lode_plan_compile(&m->plans[i], &m->graphs[i], &plan, err));
    LODE_TRY(lode_split_devices(m, m->opts.device, err));
    for (uint32_t p = 1; p < m->n_places; p++)
        if (m->devices[p].cuda)
            LODE_TRY(keep_notes(m, lode_cuda_note(m->devices[p].cuda), err));
    m->opts.device = NULL; /* the caller's string */
    LODE_TRY(lode_groups_of_experts(&m->graphs[LODE_BODY], m->weights, &m->groups, &m->n_groups,
                                    err));
    m->n_expert_groups = m->n_groups;
    LODE_TRY(lode_model_find_experts(m, err));
    LODE_TRY(lode_model_size_experts(m, err));
    LODE_TRY(lode_model_describe(m, err));
    const int rows = lode_split_by_rows(m, err);
    return rows > 0 ? lode_shard_model(m, err) : rows;
}

static int fill(struct lode_model *m, lode_store_maker *make, void *user, struct lode_error *err) {
    LODE_TRY(lode_model_choose_split(m, err));
    if (m->opts.layer_cache)
        LODE_TRY(lode_groups_of_layers(&m->graphs[LODE_BODY], m->source, m->weights, m->opts.layer_cache,
                                       &m->groups, &m->n_groups, &m->layer_room, err));
    LODE_TRY(make(&m->store, user, m, err));
    LODE_TRY(lode_model_fill_devices(m, err));
    LODE_TRY(lode_model_keep_experts(m, err));
    LODE_TRY(lode_model_fetch_layers(m, err));
    lode_model_choose_numerics(m);
    m->info.vectors_only = m->arch->encoder || m->hp.both_ways;
    m->opts.progress = NULL;
    m->opts.progress_user = NULL;
    m->opts.cache_policy = m->opts.hot = NULL; /* the caller's strings */
    return 0;
}

int lode_model_open(struct lode_model **out, const char *path, const struct lode_model_opts *opts,
                    struct lode_error *err) {
    *out = NULL;
    struct lode_model *m = LODE_NEW(struct lode_model);
    if (!m)
        return lode_fail_nomem(err, "model");
    if (opts)
        m->opts = *opts;
    int rc = choose_isa(m, m->opts.isa, err);
    rc = rc < 0 ? rc : choose_numerics(m, m->opts.numerics, err);
    rc = rc < 0 ? rc : lode_split_mode(m, m->opts.split_mode, err);
    m->opts.split_mode = NULL; /* the caller's string */
    if (rc == 0)
        rc = keep_lists(m, err);
    if (rc == 0)
        rc = open_model(m, path, err);
    if (rc < 0)
        lode_model_free(m);
    else
        *out = m;
    return rc;
}

int lode_model_load_with(struct lode_model **out, const char *path,
                         const struct lode_model_opts *opts, lode_store_maker *make, void *user,
                         struct lode_error *err) {
    LODE_TRY(lode_model_open(out, path, opts, err));
    const int rc = (*out)->opts.vocab_only ? 0 : fill(*out, make, user, err);
    if (rc < 0) {
        lode_model_free(*out);
        *out = NULL;
    }
    return rc;
}

static int from_file(struct lode_store **out, void *user, const struct lode_model *m,
                     struct lode_error *err) {
    const struct lode_model_opts *o = &m->opts;
    const uint32_t n_layers = m->n_groups - m->n_expert_groups;
    /* a fault of a mapped page brings up to 2 MB of the file around it, which no budget would have counted */
    struct lode_file_store_opts resident = {.direct = o->direct || (lode_model_streams(m) && !o->mlock),
                                            .mlock = o->mlock,
                                            .no_checksum = o->no_checksum,
                                            .prefault = o->prefault,
                                            .progress = o->progress,
                                            .progress_user = o->progress_user};
    (void)user;
    if (!lode_model_streams(m))
        return lode_file_store_create(out, m->source, m->weights, m->n_weights, &resident, err);
    if (o->expert_cache && m->n_expert_groups == 0)
        return lode_fail(err, LODE_ERR_ARG, "--expert-cache",
                         "the model has no experts: all of it is used for each token");
    struct lode_store *layers = NULL;
    resident.skip_first = o->expert_cache ? 0 : m->n_expert_groups;
    resident.n_skip = m->n_groups - resident.skip_first;
    if (m->layer_room)
        LODE_TRY(lode_stream_create(&layers, m->source, m->weights, m->n_weights, m->groups,
                                    m->n_expert_groups, n_layers,
                                    &(struct lode_stream_opts){.budget = m->layer_room,
                                                               .in_turn = true,
                                                               .no_checksum = o->no_checksum,
                                                               .resident = resident},
                                    err));
    if (!o->expert_cache) {
        *out = layers;
        return layers ? 0
                      : lode_file_store_create(out, m->source, m->weights, m->n_weights, &resident,
                                               err);
    }
    struct lode_stream_opts stream = {.budget = o->expert_cache,
                                      .policy = o->cache_policy,
                                      .no_prefetch = o->no_prefetch,
                                      .no_checksum = o->no_checksum,
                                      .under = layers,
                                      .resident = resident};
    uint32_t *hot = NULL;
    int rc = o->hot ? lode_hot_read(m, o->hot, &hot, &stream.n_hot, err) : 0;
    stream.hot = hot;
    if (rc == 0)
        rc = lode_stream_create(out, m->source, m->weights, m->n_weights, m->groups, 0,
                                m->n_expert_groups, &stream, err);
    else if (layers)
        layers->ops->free(layers);
    lode_free(hot);
    return rc;
}

int lode_model_load(struct lode_model **out, const char *path, const struct lode_model_opts *opts,
                    struct lode_error *err) {
    return lode_model_load_with(out, path, opts, from_file, NULL, err);
}

int lode_model_fill(struct lode_model *m, uint64_t expert_cache, uint64_t layer_cache,
                    struct lode_error *err) {
    if (m->store || m->opts.vocab_only)
        return lode_fail(err, LODE_ERR_ARG, m->source->path, "its weights are there already, or not "
                         "to be: nothing to fill");
    m->opts.expert_cache = expert_cache;
    m->opts.layer_cache = layer_cache;
    return fill(m, from_file, NULL, err);
}

void lode_model_split(struct lode_model *m, uint32_t gpu_layers, uint32_t cpu_experts) {
    m->gpu_layers = gpu_layers;
    m->cpu_experts = cpu_experts;
    m->is_split = true;
}

void lode_model_gpu_cache(struct lode_model *m, uint64_t bytes) {
    m->gpu_cache = bytes;
    m->has_beside = true;
}

void lode_model_bring(struct lode_model *m) { m->brings = true; }

uint64_t lode_model_layers_size(const struct lode_model *m) {
    return lode_layers_size(&m->graphs[LODE_BODY], m->source, m->weights, NULL);
}

void lode_model_free(struct lode_model *m) {
    if (!m)
        return;
    for (uint32_t p = 0; p < LODE_PLACES; p++)
        lode_cuda_close(m->devices[p].cuda);
    if (m->store)
        m->store->ops->free(m->store);
    for (int i = 0; i < LODE_PLANS; i++)
        lode_plan_deinit(&m->plans[i]);
    for (int i = 0; i < LODE_STAGES; i++)
        lode_graph_free(&m->graphs[i]);
    lode_free(m->kv);
    lode_free(m->state);
    lode_free(m->weights);
    lode_free(m->groups);
    lode_free(m->chat_template);
    lode_free(m->name);
    lode_free(m->type);
    lode_free(m->notes);
    lode_free(m->expert_bytes);
    lode_free(m->uses);
    lode_free(m->tensor_devices);
    lode_free(m->tensor_split);
    lode_tokenizer_free(m->tokenizer);
    lode_source_close(m->source);
    lode_free(m);
}

const struct lode_model_info *lode_model_info(const struct lode_model *m) { return &m->info; }

const struct lode_tokenizer *lode_model_tokenizer(const struct lode_model *m) {
    return m->tokenizer;
}

bool lode_model_sampling_default(const struct lode_model *m, const char *key, double *value) {
    char full[128];
    snprintf(full, sizeof full, "general.sampling.%s", key);
    return lode_source_f64(m->source, full, value);
}

const char *const *lode_model_archs(void) {
    static const char *const names[] = {
#define NAME(arch) lode_arch_##arch.name,
        LODE_ARCH_LIST(NAME)
#undef NAME
            NULL};
    return names;
}
