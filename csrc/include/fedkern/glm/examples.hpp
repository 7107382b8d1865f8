// Sums over examples of v_i, the gradient of w_i E log p(y_i | x_i'theta) in (mu, omega = log sigma), each clipped to a norm without
// being written down. Specification: docs/spec/pvi.md, sections 3 and 4.
#pragma once
#include "fedkern/privacy/scalar.hpp"
#include "passes.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// The weights of rows in units of the grid; NaN for a row that is skipped: NaN x 0 is not 0, so it must never be multiplied.
/// `single`: X is in float32.
inline void clip_weights(Index n, const double* squared_norm, const Clipping& clip, bool single, double* w) {
    const double most = clip.bound * (1 - clip_margin(single && !(clip.grid > 0))), unit = clip.grid > 0 ? clip.grid : 1;
    for (Index i = 0; i < n; ++i) {
        const double norm = std::sqrt(squared_norm[i]);
        w[i] = squared_norm[i] <= std::numeric_limits<double>::max() ? (norm > most ? most / norm : 1.0) / unit : nan;
    }
}

/// The second half of v_i, up to its coefficient beta_i: x^2 sigma^2; x sigma e (one draw of the weights); or written down.
enum class Shape { square, linear, stored };

/// The rows of a block that are summed, alpha x and beta z, up to a multiple of eight.
template <class T> struct Kept {
    Index size;
    const T** x;
    double *alpha, *beta;
    const double* z[block_rows]; // of Shape::stored

    /// Multiplies the coefficients of n rows with their weights w; rows without a weight are left out.
    template <class Stored> Kept(Index n, const T** x_, const Stored& stored, const double* w, double* alpha_, double* beta_)
        : size(n), x(x_), alpha(alpha_), beta(beta_) {
        Index unweighted = 0;
        for (Index i = 0; i < n; ++i) unweighted += w[i] != w[i];
        for (Index i = 0; i < n; ++i) alpha[i] *= w[i], beta[i] *= w[i], z[i] = stored(i);
        if (unweighted) {
            size = 0;
            for (Index i = 0; i < n; ++i)
                if (w[i] == w[i]) x[size] = x[i], z[size] = z[i], alpha[size] = alpha[i], beta[size++] = beta[i];
        }
        for (Index i = size; i < round_up(size, 8); ++i) x[i] = x[0], z[i] = z[0], alpha[i] = beta[i] = 0;
    }
};

template <bool grid, class V> FEDKERN_INLINE V rounded(const V& x) {
    if constexpr (grid) return x.truncated();
    else return x;
}

/// g_j += sum_i alpha_i x_ij, h_j += sum_i beta_i z_ij. Without a grid, factors of z that all rows share (v) are left to the caller.
template <Shape shape, bool grid, class T> void add_examples(const Kept<T>& kept, const double* v, Index d, double* g, double* h) {
    constexpr int R = shape == Shape::linear && !grid ? 8 : 4;
    constexpr bool second = grid || shape != Shape::linear;
    using V = Streamed<double>;
    for (Index i = 0; i < kept.size; i += R) {
        V a[R], b[R];
        for (int r = 0; r < R; ++r) a[r] = V::all(kept.alpha[i + r]), b[r] = V::all(kept.beta[i + r]);
        const auto add = [&](Index j, const auto& load) {
            V gj = V::load(g + j), hj = V::load(h + j);
            for (int r = 0; r < R; ++r) {
                const V x = load(kept.x[i + r] + j);
                gj = gj + rounded<grid>(a[r] * x);
                if constexpr (shape == Shape::square && grid) hj = hj + rounded<grid>(b[r] * (x * x * V::load(v + j)));
                else if constexpr (shape == Shape::square) hj = hj + b[r] * (x * x);
                else if constexpr (shape == Shape::linear && grid) hj = hj + rounded<grid>(b[r] * (x * V::load(v + j)));
                else if constexpr (shape == Shape::stored) hj = hj + rounded<grid>(b[r] * load(kept.z[i + r] + j));
            }
            gj.store(g + j);
            if constexpr (second) hj.store(h + j);
        };
        Index j = 0;
        for (; j + V::size <= d; j += V::size) add(j, [](const auto* p) { return V::load(p); });
        if (j < d) add(j, [&](const auto* p) { return V::load(p, int(d - j)); });
    }
}

/// g_j += sum_i alpha_i x_ij of float32 rows: 64 rows at a time in float32, and these sums in float64.
class NarrowSums {
  public:
    explicit NarrowSums(Index d) : d_(d), sum_(d) {}

    /// False, and nothing is added, if a coefficient is not in the range of section 4, "Rows in float32".
    bool add(const Kept<float>& kept, const char* at, Index pace, double* g) {
        alignas(64) float alpha[block_rows];
        const Index padded = round_up(kept.size, 8);
        for (Index i = 0; i < padded; ++i) {
            const double size = math::magnitude(kept.alpha[i]);
            if (!((size >= narrow_weight && size <= 1 / narrow_weight) || size == 0)) return false;
            alpha[i] = float(kept.alpha[i]);
        }
        if (rows_ + padded > block_rows) close(g);
        rows_ += padded;
        add_eights<Reading::asked>(kept.x, alpha, padded, d_, at, pace, sum_.data());
        return true;
    }
    void close(double* g) {
        for (Index j = 0; j < d_; ++j) g[j] += double(sum_[j]), sum_[j] = 0;
        rows_ = 0;
    }

  private:
    Index d_, rows_ = 0;
    Lines<float> sum_;
};

/// The coefficients of a block's rows: v_i = (alpha_i x_i, beta_i z_i), before clipping, and ||v_i||^2.
struct Coefficients {
    alignas(64) double alpha[block_rows], beta[block_rows], squared[block_rows], value[block_rows];
    bool narrow = false; // the rows may be summed in float32
};

/// Finds alpha^2 n2 + beta^2 n4 anew for the rows whose coefficients have squares that can't be formed.
inline void mend_squares(Index n, const double* m, const double* n2, const double* n4, Coefficients& c) {
    Index extreme = 0;
    for (Index i = 0; i < n; ++i) extreme += is_extreme(c.alpha[i]) | is_extreme(c.beta[i]);
    for (Index i = 0; extreme && i < n; ++i)
        if (is_extreme(c.alpha[i]) | is_extreme(c.beta[i]))
            c.squared[i] = row_square(c.alpha[i], n2[i]) + row_square(c.beta[i], n4[i]) + 0 * m[i];
}

/// An estimator's room for one thread's work; stored(i) is z of row i, where that is written down.
struct NoScratch {
    template <class Estimator> explicit NoScratch(const Estimator&) {}
    const double* stored(Index) const { return nullptr; }
};

/// The expectation under q, exactly: section 3.1.
struct Analytic {
    static constexpr Shape shape = Shape::square;
    using Number = double;
    using Scratch = NoScratch;
    const Activations& q;

    const double* factor() const { return q.variance(); }

    void find(const RowBlock<double>& block, const Family& family, bool value, Coefficients& c, Scratch&) const {
        alignas(64) double m[block_rows], s[block_rows], n2[block_rows], n4[block_rows];
        row_sums<true>(block, q.d(), q.mu(), q.variance(), m, s, n2, n4);
        Activations::finish(block, m, s);
        family.expect(block.padded, m, s, block.y, value ? c.value : nullptr, c.alpha, c.beta);
        for (Index i = 0; i < block.size; ++i) {
            const double w = block.weight[i];
            c.alpha[i] *= w, c.beta[i] *= w;
            c.squared[i] = c.alpha[i] * c.alpha[i] * n2[i] + c.beta[i] * c.beta[i] * n4[i] + 0 * m[i];
        }
        mend_squares(block.size, m, n2, n4, c);
        if (!value) return;
        alignas(64) double base[block_rows];
        family.base(block.size, block.y, base);
        for (Index i = 0; i < block.size; ++i) c.value[i] = block.weight[i] * (c.value[i] + base[i]);
    }
};

/// Draws of the activations, the same for all rows: section 3.3. z_s is element s of rng's draw 0.
struct Activated {
    static constexpr Shape shape = Shape::square;
    using Number = double;
    using Scratch = NoScratch;
    const Activations& q;
    Lines<double> z;

    Activated(const Activations& q_, const Draws& draws) : q(q_), z(draws.count) {
        fill_normal({z.data(), draws.count}, {0, 0, draws.client, draws.step}, draws.key);
    }
    const double* factor() const { return q.variance(); }

    void find(const RowBlock<double>& block, const Family& family, bool, Coefficients& c, Scratch&) const {
        alignas(64) double m[block_rows], s[block_rows], n2[block_rows], n4[block_rows];
        row_sums<true>(block, q.d(), q.mu(), q.variance(), m, s, n2, n4);
        Activations::finish(block, m, s);
        alignas(64) double a[block_rows], slope[block_rows];
        std::fill_n(c.alpha, block_rows, 0.0);
        std::fill_n(c.beta, block_rows, 0.0);
        for (const double zs : z) {
            for (Index i = 0; i < block.padded; ++i) a[i] = m[i] + s[i] * zs;
            family.slopes(block.padded, a, block.y, slope);
            for (Index i = 0; i < block.padded; ++i) c.alpha[i] += slope[i], c.beta[i] += slope[i] * zs;
        }
        for (Index i = 0; i < block.size; ++i) {
            const double w = block.weight[i] / double(z.size());
            c.alpha[i] *= w;
            c.beta[i] = s[i] == 0 ? 0 : c.beta[i] * w / s[i];
            c.squared[i] = c.alpha[i] * c.alpha[i] * n2[i] + c.beta[i] * c.beta[i] * n4[i] + 0 * m[i];
        }
        mend_squares(block.size, m, n2, n4, c);
    }
};

/// The rows of a posterior and a draw that may be summed in float32 lanes: section 4, "Rows in float32".
inline constexpr double narrow_deviation = 0x1p20, narrow_theta = 0x1p40;

/// One draw theta = mu + sigma e of the weights: section 3.2, S = 1. v = R (x, x sigma e). Reads X as it is. A row's two sums are in
/// float64, or, of float32 rows that are summed without a grid, in float32 with the margin of section 4.
template <class T> struct OneWeight {
    static constexpr Shape shape = Shape::linear;
    using Number = T;
    using Scratch = NoScratch;
    Index d;
    Lines<double> theta, deviation, length; // mu + deviation, sigma e, sqrt(1 + deviation^2)

    bool narrow = false, flows;
    Lines<float> narrow_to, narrow_length; // theta and length in float32

    OneWeight(const Regression& data, const Posterior& q, const Draws& draws, [[maybe_unused]] bool grid)
        : d(q.mu.size), theta(padded_copy<double>(q.mu)), deviation(padded_copy<double>(q.log_sigma)), length(theta.size(), 1.0),
          flows(sizeof(T) == 8 &&
                reading(data.n, d * Index(sizeof(T)), !data.picked && data.col_stride == 1 && data.row_stride == d) == Reading::flowing) {
        const auto e = normal_draws(draws, d);
        for (Index j = 0; j < d; ++j) {
            deviation[j] = math::exp(deviation[j]) * e[j];
            theta[j] += deviation[j];
            length[j] = std::sqrt(1 + deviation[j] * deviation[j]);
        }
        if constexpr (sizeof(T) == 4) {
            narrow = !grid;
            for (Index j = 0; j < d; ++j)
                narrow = narrow && math::magnitude(deviation[j]) <= narrow_deviation && math::magnitude(theta[j]) <= narrow_theta;
            if (narrow) narrow_to.assign(theta.begin(), theta.end()), narrow_length.assign(length.begin(), length.end());
        }
    }
    const double* factor() const { return deviation.data(); }

    /// x'theta and sum x^2 (1 + sigma^2 e^2) of R rows.
    template <int R, bool asks = true>
    FEDKERN_INLINE void sums(const T* const* x, const char* at, Index pace, double* a, double* squared) const {
        using V = Pack<double>;
        V sum_a[R], sum_2[R];
        for (int r = 0; r < R; ++r) sum_a[r] = sum_2[r] = V::all(0);
        for_packs<V, R, asks>(x, d, at, pace, [&](int r, const V& xj, Index j) {
            const V z = xj * V::load(length.data() + j);
            sum_a[r] = sum_a[r] + xj * V::load(theta.data() + j);
            sum_2[r] = sum_2[r] + z * z;
        });
        sums_of<R>(sum_a, a), sums_of<R>(sum_2, squared);
    }

    /// The same in float32 lanes, whose sums are added in float64.
    template <int R> FEDKERN_INLINE void narrow_sums(const float* const* x, const char* at, Index pace, double* a, double* squared) const {
        using V = Streamed<float>;
        for (int r = 0; r < R; ++r) a[r] = squared[r] = 0;
        for (Index begin = 0; begin < d; begin += narrow_columns) {
            const float *row[R], *t = narrow_to.data() + begin, *l = narrow_length.data() + begin;
            for (int r = 0; r < R; ++r) row[r] = x[r] + begin;
            V sum_a[R], sum_2[R];
            for (int r = 0; r < R; ++r) sum_a[r] = sum_2[r] = V::all(0);
            const Index size = std::min(narrow_columns, d - begin);
            for_packs<V, R>(row, size, at, pace, [&](int r, const V& xj, Index j) {
                const V z = xj * V::load(l + j);
                sum_a[r] = sum_a[r] + xj * V::load(t + j);
                sum_2[r] = sum_2[r] + z * z;
            });
            for (int r = 0; r < R; ++r) a[r] += double(sum_a[r].sum()), squared[r] += double(sum_2[r].sum());
            at += size / V::size * R * pace;
        }
    }

    /// Whether all rows are in the range of float32 sums.
    bool find_narrow(const RowBlock<float>& block, double* a, double* squared) const {
        constexpr int tile = register_bytes == 64 ? 4 : register_bytes == 32 ? 2 : 1;
        const Ahead ahead = block.ahead(4); // the other half of the next block is asked for while this one is added
        Index i = 0;
        for (; i + tile <= block.size; i += tile) narrow_sums<tile>(block.x + i, ahead.of(i), ahead.pace, a + i, squared + i);
        for (; i < block.size; ++i) narrow_sums<1>(block.x + i, ahead.of(i), ahead.pace, a + i, squared + i);
        bool all = true;
        for (i = 0; i < block.size; ++i)
            if (!(is_finite(a[i]) && squared[i] >= narrow_least && squared[i] <= narrow_most)) {
                sums<1>(block.x + i, Ahead::nowhere, 0, a + i, squared + i);
                all = all && (squared[i] == 0 || !is_finite(squared[i])); // zeros are, and what is not finite is left out, or makes NaN
            }
        return all;
    }

    void find(const RowBlock<T>& block, const Family& family, bool, Coefficients& c, Scratch&) const {
        alignas(64) double a[block_rows];
        if constexpr (sizeof(T) == 4)
            if (narrow) {
                c.narrow = find_narrow(block, a, c.squared);
                return finish(block, family, a, c);
            }
        Index i = 0;
        if constexpr (sizeof(T) == 8) {
            if (flows)
                for (; i < block.size; ++i) sums<1, false>(block.x + i, Ahead::nowhere, 0, a + i, c.squared + i);
        }
        const Ahead ahead = block.ahead();
        for (; i + tile_rows <= block.size; i += tile_rows) sums<tile_rows>(block.x + i, ahead.of(i), ahead.pace, a + i, c.squared + i);
        for (; i < block.size; ++i) sums<1>(block.x + i, ahead.of(i), ahead.pace, a + i, c.squared + i);
        finish(block, family, a, c);
    }

    /// From x'theta and sum x^2 (1 + sigma^2 e^2) to the coefficients.
    static void finish(const RowBlock<T>& block, const Family& family, double* a, Coefficients& c) {
        Index i;
        for (i = block.size; i < block.padded; ++i) a[i] = c.squared[i] = 0;
        for (i = 0; i < block.padded; ++i) a[i] += block.offset[i];
        family.slopes(block.padded, a, block.y, c.alpha);
        for (i = 0; i < block.padded; ++i) {
            c.beta[i] = c.alpha[i] *= block.weight[i];
            c.squared[i] = row_square(c.alpha[i], c.squared[i]) + 0 * a[i];
        }
    }
};

/// Several draws of the weights: section 3.2, first form. v = (mean_s R_s x, z), z = x * sum_s R_s sigma e_s / S, which is stored.
struct SeveralWeights {
    static constexpr Shape shape = Shape::stored;
    using Number = double;
    Index d, draws, padded;
    Lines<double> theta, deviation; // rows of length `padded`; deviation = sigma e / S
    std::vector<const double*> deviations;

    struct Scratch {
        Index padded;
        Lines<double> z, slopes; // slopes: [group of eight rows][draw][row]
        explicit Scratch(const SeveralWeights& e) : padded(e.padded), z(block_rows * padded), slopes(block_rows * e.draws) {}
        const double* stored(Index i) const { return z.data() + i * padded; }
    };

    SeveralWeights(const Posterior& q, const Draws& from) : d(q.mu.size), draws(from.count), padded(round_up(d, 16)) {
        const auto e = normal_draws(from, d);
        theta.resize(draws * padded), deviation.resize(draws * padded);
        for (Index s = 0; s < draws; ++s) {
            for (Index j = 0; j < d; ++j) {
                const double step = math::exp(q.log_sigma[j]) * e[s * d + j];
                theta[s * padded + j] = q.mu[j] + step;
                deviation[s * padded + j] = step / double(draws);
            }
            deviations.push_back(deviation.data() + s * padded);
        }
    }
    SeveralWeights(const SeveralWeights&) = delete;
    const double* factor() const { return nullptr; }

    void find(const RowBlock<double>& block, const Family& family, bool, Coefficients& c, Scratch& scratch) const {
        using V = Streamed<double>;
        std::fill_n(c.alpha, block.padded, 0.0);
        alignas(64) double a[block_rows], slope[block_rows];
        for (Index s = 0; s < draws; ++s) {
            row_dots(block.x, s == 0 ? block.ahead() : Ahead{}, block.size, theta.data() + s * padded, d, a);
            for (Index i = block.size; i < block.padded; ++i) a[i] = 0;
            for (Index i = 0; i < block.padded; ++i) a[i] += block.offset[i];
            family.slopes(block.padded, a, block.y, slope);
            for (Index i = 0; i < block.padded; ++i) {
                scratch.slopes[(i / 8 * draws + s) * 8 + i % 8] = block.weight[i] * slope[i];
                c.alpha[i] += block.weight[i] * slope[i] / double(draws);
            }
        }
        std::fill(scratch.z.begin(), scratch.z.end(), 0.0);
        for (Index i = 0; i < block.padded; i += 8)
            add_panel(deviations.data(), draws, scratch.slopes.data() + i * draws, padded, scratch.z.data() + i * padded, padded);
        for (Index i = 0; i < block.size; ++i) {
            V sum_x = V::all(0), sum_z = sum_x;
            double* zi = scratch.z.data() + i * padded;
            for_packs<V, 1>(block.x + i, d, Ahead::nowhere, 0, [&](int, const V& x, Index j) {
                const V zj = x * V::load(zi + j);
                zj.store(zi + j);
                sum_x = sum_x + x * x;
                sum_z = sum_z + zj * zj;
            });
            c.beta[i] = 1;
            const double x2 = sum_x.sum(), z2 = sum_z.sum();
            c.squared[i] = is_extreme(c.alpha[i]) ? row_square(c.alpha[i], x2) + z2 : c.alpha[i] * c.alpha[i] * x2 + z2;
        }
    }
};

/// total = sum of w_i v_i, in float64 or in whole multiples of the grid. With `clip`, a row in which anything is not finite is
/// skipped, and the number of those is returned; without, it is summed. `value`, if wanted, receives the sum of w_i E log p.
template <class Out, class Estimator> Index sum_examples(const Regression& data, const Family& family, const Estimator& estimator,
                                                         const Clipping* clip, double* value, Vector<Out> total, int n_threads) {
    constexpr bool grid = std::is_integral_v<Out>;
    const Index d = data.d, padded = round_up(d, 16), chunks = chunk_count(data.n, 2 * padded);
    // Whole numbers below 2^53 are exact in float64: that many rows before they are moved to int64.
    const auto most = grid ? std::max(Index{block_rows}, Index(0x1p52 / (clip->bound / clip->grid))) : 0;
    Lines<Out> partial(chunks * 2 * padded);
    std::vector<Index> skipped(chunks);
    std::vector<double> values(chunks);
    for_blocks(data.n, chunks, n_threads, [&](Index chunk, Index begin, Index end) {
        constexpr Shape shape = Estimator::shape;
        constexpr bool narrows = std::is_same_v<typename Estimator::Number, float> && !grid;
        [[maybe_unused]] NarrowSums narrow(narrows ? padded : 0);
        typename Estimator::Scratch scratch(estimator);
        Out* into = partial.data() + chunk * 2 * padded;
        Lines<double> apart(grid ? 2 * padded : 0);
        double* sums;
        if constexpr (grid) sums = apart.data();
        else sums = into;
        const auto flush = [&] {
            for (Index j = 0; j < 2 * padded; ++j) into[j] += Out(sums[j]), sums[j] = 0;
        };
        Coefficients c;
        Index rows = 0;
        alignas(64) double w[block_rows];
        std::fill_n(w, block_rows, 1.0);
        Index bytes = block_bytes;
        if constexpr (requires { estimator.flows; }) bytes = estimator.flows ? short_bytes : block_bytes;
        for (RowBlock<typename Estimator::Number> block(data, family, begin, end, bytes); block.next();) {
            estimator.find(block, family, value, c, scratch);
            for (Index i = 0; value && i < block.size; ++i) values[chunk] += c.value[i];
            if (clip) clip_weights(block.size, c.squared, *clip, data.single, w);
            const Kept<typename Estimator::Number> kept(
                block.size, block.x, [&](Index i) { return scratch.stored(i); }, w, c.alpha, c.beta);
            skipped[chunk] += block.size - kept.size;
            bool added = false;
            if constexpr (narrows) {
                const Ahead ahead = block.ahead(4);
                added = c.narrow && narrow.add(kept, ahead.of(block.size), 2 * ahead.pace, sums);
            }
            if (!added) add_examples<shape, grid>(kept, estimator.factor(), d, sums, sums + padded);
            if (grid && (rows += block.size) >= most) flush(), rows = 0;
        }
        if constexpr (narrows) narrow.close(sums);
        if constexpr (!grid)
            for (Index j = 0; j < d; ++j) {
                if (shape == Shape::square) sums[padded + j] *= estimator.factor()[j];
                if (shape == Shape::linear) sums[padded + j] = sums[j] * estimator.factor()[j];
            }
        if constexpr (grid) flush();
    });
    Index all_skipped = 0;
    for (Index j = 0; j < 2 * d; ++j) total[j] = 0;
    for (Index b = 0; b < chunks; ++b) {
        const Out* from = partial.data() + b * 2 * padded;
        for (Index j = 0; j < d; ++j) total[j] += from[j], total[d + j] += from[padded + j];
        if (value) *value += values[b];
        all_skipped += skipped[b];
    }
    return all_skipped;
}

/// Adds keyed normal noise: rng's element j of draw 2^32 - 1, which no estimator uses.
inline void add_keyed_noise(Vector<double> total, double sd, const Draws& from) {
    std::vector<double> noise(total.size);
    fill_normal({noise.data(), total.size}, {0, ~0u, from.client, from.step}, from.key);
    for (Index j = 0; j < total.size; ++j) total[j] += sd * noise[j];
}

/// The private step's sum over the rows in use, Out = double or (with a grid) long.
template <class Out> Index glm_clipped_sum(const Regression& data, const Posterior& q, Likelihood likelihood, const Draws& draws,
                                           const Clipping& clip, Vector<Out> total, int n_threads) {
    const auto family = make_family(likelihood);
    const auto sum = [&](const auto& by) { return sum_examples(data, *family, by, &clip, nullptr, total, n_threads); };
    Index skipped;
    if (draws.kind == Draws::Kind::weights) {
        skipped = draws.count > 1 ? sum(SeveralWeights(q, draws))
                  : data.single   ? sum(OneWeight<float>(data, q, draws, clip.grid > 0))
                                  : sum(OneWeight<double>(data, q, draws, clip.grid > 0));
    } else {
        const Activations activations(q);
        skipped = draws.kind == Draws::Kind::activations ? sum(Activated(activations, draws)) : sum(Analytic{activations});
    }
    if constexpr (!std::is_integral_v<Out>)
        if (clip.noise > 0) add_keyed_noise(total, clip.noise * clip.bound, draws);
    return skipped;
}

} // namespace FEDKERN_ISA
} // namespace fedkern
