#include "store/weight.h"

int lode_store_pin_now(struct lode_store *s, uint32_t id, const void **data, bool (*cancel)(void *user), void *user,
                       struct lode_error *err) {
    bool held = false;
    for (;;) {
        const uint64_t seen = s->ops->news(s, id);
        int rc = held ? s->ops->look(s, id, data, err) : s->ops->pin(s, id, data, err);
        if (rc > LODE_READY && cancel && cancel(user)) {
            held = rc == LODE_PENDING;
            rc = lode_fail(err, LODE_ERR_CANCELLED, "", "cancelled");
        }
        if (rc < 0 && held)
            s->ops->unpin(s, id);
        if (rc <= LODE_READY)
            return rc;
        held = rc == LODE_PENDING;
        s->ops->wait(s, seen, id);
    }
}
