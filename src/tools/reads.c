/* reads.c - see reads.h. */
#include "reads.h"

double reads_of_model(const struct lode_model *m, uint32_t threads, double seconds) {
    const struct lode_model_info *info = lode_model_info(m);
    static struct lode_device_speeds known;
    static int gpu = -1; /* that they are of; what could not be measured is 0 */
    if (!info->on_gpu) {
        const double v = lode_machine_read_bandwidth(threads, seconds, NULL);
        return v > 0 ? v : 0;
    }
    if (info->on_cpu || info->n_gpus > 1)
        return 0;
    if (gpu != info->gpu) {
        gpu = info->gpu;
        lode_device_speeds(gpu, &known, NULL);
    }
    return known.read;
}
