/* LinUCB by rank-one updates, written by hand: the speed that a compiler for arrays can be measured against.
 *
 * The recurrence of fedbandit_jax/regression.py for R independent runs, one thread per run at a time; noise is given.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

void linucb(int R, int K, int d, int T, float alpha, float lam, float noise_scale, const float *restrict all_arms,
            const float *restrict all_means, const float *restrict all_noise, float *restrict regret) {
#pragma omp parallel for schedule(dynamic, 1)
    for (int run = 0; run < R; run++) {
        const float *arms = all_arms + (size_t)run * K * d;
        const float *truth = all_means + (size_t)run * K;
        const float *noise = all_noise + (size_t)run * T;
        float *inverse = calloc((size_t)d * d, sizeof(float));
        float *means = calloc(K, sizeof(float));
        float *widths = malloc(K * sizeof(float));
        float *u = malloc(d * sizeof(float));
        float best = truth[0], lost = 0;
        for (int i = 0; i < d; i++) inverse[i * d + i] = 1 / lam;
        for (int k = 0; k < K; k++) {
            widths[k] = 1 / lam;
            if (truth[k] > best) best = truth[k];
        }
        for (int t = 0; t < T; t++) {
            int arm = 0;
            float top = -INFINITY;
            for (int k = 0; k < K; k++) {
                float score = means[k] + alpha * sqrtf(fmaxf(widths[k], 0));
                if (score > top) top = score, arm = k;
            }
            const float *x = arms + (size_t)arm * d;
            for (int i = 0; i < d; i++) {
                float sum = 0;
                for (int j = 0; j < d; j++) sum += inverse[i * d + j] * x[j];
                u[i] = sum;
            }
            float gain = 1 / (1 + widths[arm]);
            float step = gain * (truth[arm] + noise_scale * noise[t] - means[arm]);
            for (int k = 0; k < K; k++) {
                float s = 0;
                for (int j = 0; j < d; j++) s += arms[(size_t)k * d + j] * u[j];
                means[k] += step * s;
                widths[k] -= gain * s * s;
            }
            for (int i = 0; i < d; i++)
                for (int j = 0; j < d; j++) inverse[i * d + j] -= gain * u[i] * u[j];
            lost += best - truth[arm];
        }
        regret[run] = lost;
        free(inverse), free(means), free(widths), free(u);
    }
}
