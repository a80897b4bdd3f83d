/* LinUCB on arms drawn anew every round, written by hand: K of a pool of A, without replacement.
 *
 * R independent clients, one thread per client at a time. Nothing of a round outlives it but V^-1 and theta, so a round
 * costs the widths x' V^-1 x of K fresh arms. They take most of it, and these savings are used: V^-1 is symmetric, so
 * the products left of its diagonal blocks count twice and those to the right are not made; arms lie transposed, eight to
 * a vector, so that no sum runs across a vector; and ROWS rows of V^-1 times WIDE vectors of arms are in registers.
 * With -DALL_PRODUCTS it makes all products of X V^-1, as a matrix product does.
 */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#ifndef STAGE /* a profile by stage: -DSTAGE='static __attribute__((noinline))' */
#define STAGE static inline
#endif
#if defined(__x86_64__) /* or gcc loads the vector anew for each product, and loads bind */
#define KEEP_IN_REGISTER(v) __asm__("" : "+x"(v))
#else
#define KEEP_IN_REGISTER(v)
#endif

enum { LANES = 8, ROWS = 4, WIDE = 3 };
typedef float lane __attribute__((vector_size(4 * LANES)));
typedef float unaligned_lane __attribute__((vector_size(4 * LANES), aligned(4)));

/* ---- drawing: xoshiro256+, seeded by splitmix64 */

static uint64_t splitmix(uint64_t *state) {
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

INLINE uint64_t next(uint64_t s[4]) {
    uint64_t result = s[0] + s[3], t = s[1] << 17;
    s[2] ^= s[0], s[3] ^= s[1], s[1] ^= s[2], s[0] ^= s[3];
    s[2] ^= t, s[3] = (s[3] << 45) | (s[3] >> 19);
    return result;
}

/* The first K steps of Fisher-Yates: uniform from whatever permutation the last round left. */
STAGE void draw(uint64_t generator[4], int *permutation, int A, int K, int *index) {
    uint64_t s[4];
    memcpy(s, generator, sizeof s);
    for (int k = 0; k < K; k++) {
        int from = k + (int)(((next(s) >> 32) * (uint64_t)(A - k)) >> 32);
        int arm = permutation[from];
        permutation[from] = permutation[k];
        index[k] = permutation[k] = arm;
    }
    memcpy(generator, s, sizeof s);
}

/* ---- gathering: x[i * P + k] = entry i of arm k; P is K and D is d, rounded up to whole vectors */

#define MIX __builtin_shufflevector
INLINE void transpose(const float *const rows[LANES], int column, float *to, int stride) {
    lane a[8], b[8];
    for (int i = 0; i < 8; i++) a[i] = *(const unaligned_lane *)(rows[i] + column);
    for (int i = 0; i < 8; i += 2) {
        b[i] = MIX(a[i], a[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        b[i + 1] = MIX(a[i], a[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
    for (int i = 0; i < 8; i += 4)
        for (int j = 0; j < 2; j++) {
            a[i + 2 * j] = MIX(b[i + j], b[i + j + 2], 0, 1, 8, 9, 4, 5, 12, 13);
            a[i + 2 * j + 1] = MIX(b[i + j], b[i + j + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        }
    for (int i = 0; i < 4; i++) {
        *(lane *)(to + i * stride) = MIX(a[i], a[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
        *(lane *)(to + (i + 4) * stride) = MIX(a[i], a[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    }
}

STAGE void gather(const float *pool, int D, const int *index, int K, float *x, int P) {
    for (int k = 0; k < P; k += LANES) {
        const float *rows[LANES];
        for (int l = 0; l < LANES; l++) rows[l] = pool + (size_t)index[k + l < K ? k + l : K - 1] * D;
        for (int i = 0; i < D; i += LANES) transpose(rows, i, x + (size_t)i * P + k, P);
    }
}

/* ---- widths x' V^-1 x and the means under the estimate and the truth, of `wide` vectors of arms */

INLINE void add_products(int wide, lane y[ROWS][WIDE], const float *entries, const float *x) {
    lane v[WIDE];
    for (int c = 0; c < wide; c++) {
        v[c] = *(const lane *)(x + c * LANES);
        KEEP_IN_REGISTER(v[c]);
    }
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < wide; c++) y[r][c] += entries[r] * v[c];
}

INLINE void rate(int wide, const float *inverse, const float *theta, const float *truth, int d, int D, const float *x,
                 int P, float *widths, float *means, float *rewards) {
    lane mean[WIDE], reward[WIDE], *width = (lane *)widths;
    for (int c = 0; c < wide; c++) mean[c] = reward[c] = width[c] = (lane){0};
    for (int i = 0; i < d; i++)
        for (int c = 0; c < wide; c++) {
            lane v = *(const lane *)(x + (size_t)i * P + c * LANES);
            mean[c] += theta[i] * v, reward[c] += truth[i] * v;
        }
    for (int c = 0; c < wide; c++) ((lane *)means)[c] = mean[c], ((lane *)rewards)[c] = reward[c];
    for (int j = 0; j < d; j += ROWS) {
        const float *entries = inverse + j, *block = x + (size_t)j * P, *xi = x; /* column j of row i is row j's i */
        lane y[ROWS][WIDE];
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < wide; c++) y[r][c] = (lane){0};
#ifdef ALL_PRODUCTS
        for (int i = 0; i < d; i++, xi += P, entries += D) add_products(wide, y, entries, xi);
#else
        for (; xi < block; xi += P, entries += D) add_products(wide, y, entries, xi);
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < wide; c++) y[r][c] += y[r][c];
        for (int i = 0; i < ROWS; i++, xi += P, entries += D) add_products(wide, y, entries, xi);
#endif
        for (int r = 0; r < ROWS; r++)
            for (int c = 0; c < wide; c++) width[c] += y[r][c] * *(const lane *)(block + (size_t)r * P + c * LANES);
    }
}

STAGE void rate_all(const float *inverse, const float *theta, const float *truth, int d, int D, const float *x, int P,
                    float *widths, float *means, float *rewards) {
    for (int k = 0, left = P / LANES; left;) {
        int wide = left == 1 ? 1 : left == 2 || left == 4 ? 2 : 3; /* constants, so that each is compiled for itself */
        if (wide == 1) rate(1, inverse, theta, truth, d, D, x + k, P, widths + k, means + k, rewards + k);
        if (wide == 2) rate(2, inverse, theta, truth, d, D, x + k, P, widths + k, means + k, rewards + k);
        if (wide == 3) rate(3, inverse, theta, truth, d, D, x + k, P, widths + k, means + k, rewards + k);
        k += wide * LANES, left -= wide;
    }
}

STAGE int choose(const float *means, const float *widths, float alpha, int K, float *scores) {
    int arm = 0;
    for (int k = 0; k < K; k++) scores[k] = means[k] + alpha * sqrtf(fmaxf(widths[k], 0));
    float top = scores[0];
    for (int k = 1; k < K; k++) top = scores[k] > top ? scores[k] : top;
    while (arm < K - 1 && scores[arm] < top) arm++;
    return arm;
}

STAGE void update(float *inverse, float *theta, const float *x, float width, float error, int d, int D, float *u) {
    float gain = 1 / (1 + width);
    memset(u, 0, D * sizeof(float));
    for (int j = 0; j < d; j++)
        for (int i = 0; i < D; i++) u[i] += inverse[(size_t)j * D + i] * x[j];
    for (int i = 0; i < d; i++) theta[i] += gain * error * u[i];
    for (int j = 0; j < d; j++) {
        float scaled = gain * u[j];
        for (int i = 0; i < D; i++) inverse[(size_t)j * D + i] -= scaled * u[i];
    }
}

static void *zeros(size_t count) {
    size_t bytes = (4 * count + 63) / 64 * 64;
    return memset(aligned_alloc(64, bytes), 0, bytes);
}

/* Rounds are drawn from `seed`, or taken from `given` (R, T, K) where that is not null. */
void linucb_redrawn(int R, int A, int K, int d, int T, float alpha, float lam, uint64_t seed,
                    const float *restrict arms, const float *restrict all_truth, const float *restrict all_noise,
                    const int *restrict given, float *restrict regret) {
    int D = (d + LANES - 1) / LANES * LANES, P = (K + LANES - 1) / LANES * LANES;
    float *pool = zeros((size_t)A * D);
    for (int a = 0; a < A; a++) memcpy(pool + (size_t)a * D, arms + (size_t)a * d, d * sizeof(float));
#pragma omp parallel
    {
        float *inverse = zeros((size_t)D * D), *x = zeros((size_t)D * P);
        float *theta = zeros(D), *u = zeros(D), *truth = zeros(D);
        float *widths = zeros(P), *means = zeros(P), *rewards = zeros(P), *scores = zeros(P);
        int *permutation = zeros(A), *drawn = zeros(K);
#pragma omp for schedule(dynamic, 1)
        for (int run = 0; run < R; run++) {
            uint64_t generator[4], state = seed ^ splitmix(&(uint64_t){run});
            for (int i = 0; i < 4; i++) generator[i] = splitmix(&state);
            for (int a = 0; a < A; a++) permutation[a] = a;
            memset(inverse, 0, (size_t)D * D * sizeof(float)), memset(theta, 0, D * sizeof(float));
            for (int i = 0; i < d; i++) inverse[(size_t)i * D + i] = 1 / lam;
            memcpy(truth, all_truth + (size_t)run * d, d * sizeof(float));
            float lost = 0;
            for (int t = 0; t < T; t++) {
                size_t now = (size_t)run * T + t;
                const int *index = given ? given + now * K : drawn;
                if (!given) draw(generator, permutation, A, K, drawn);
                gather(pool, D, index, K, x, P);
                rate_all(inverse, theta, truth, d, D, x, P, widths, means, rewards);
                int arm = choose(means, widths, alpha, K, scores);
                float best = rewards[0], error = rewards[arm] + all_noise[now] - means[arm];
                for (int k = 1; k < K; k++) best = rewards[k] > best ? rewards[k] : best;
                update(inverse, theta, pool + (size_t)index[arm] * D, widths[arm], error, d, D, u);
                lost += best - rewards[arm];
            }
            regret[run] = lost;
        }
        free(inverse), free(x), free(theta), free(u), free(truth), free(permutation), free(drawn);
        free(widths), free(means), free(rewards), free(scores);
    }
    free(pool);
}
