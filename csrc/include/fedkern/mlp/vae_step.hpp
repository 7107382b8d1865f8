// The gradient of a batch, and steps of Adam along gradients of fresh batches. docs/spec/sigma.md, sections 2 and 3.
#pragma once
#include <memory>

#include "fedkern/spatial/table.hpp"
#include "vae.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {

/// The gradient of a batch, part by part: how many parts there are depends on the sizes alone.
template <class T> class VaeGradient {
  public:
    VaeGradient(const Autoencoder& a, Index batch, const Blas& blas)
        : plan_(a), batch_(batch), rows_(tile_rows(plan_, batch)), parts_(std::min<Index>((batch + rows_ - 1) / rows_, large_ ? 1 : 16)),
          gradients_((parts_ - 1) * plan_.parameters), terms_(parts_) {
        for (Index part = 0; part < parts_; ++part) tiles_.push_back(std::make_unique<VaeTile<T>>(plan_, rows_, blas));
    }

    const VaePlan& plan() const { return plan_; }

    /// Batch means of the ELBO, |theta - mu|^2, KL_G, sum_j KL_j.
    void run(const T* parameters, const VaeRows<T>& rows, VaeObjective objective, T* gradient, double* terms, int n_threads) {
        const Index k = plan_.parameters, tiles = (batch_ + rows_ - 1) / rows_;
        if (parts_ == 1) tiles_[0]->use_threads(n_threads); // else the parts have them
        for_blocks(tiles, parts_, worthwhile(n_threads, 6 * double(k) * double(batch_)), [&](Index part, Index first, Index last) {
            terms_[part] = {};
            for (Index t = first; t < last; ++t)
                terms_[part] += tiles_[part]->run(parameters, rows, t * rows_, std::min(rows_, batch_ - t * rows_), batch_, objective,
                                                  part ? gradients_ + (part - 1) * k : gradient, t > first);
        });
        VaeTerms sum;
        for (const VaeTerms& t : terms_) sum += t;
        for (Index part = 1; part < parts_; ++part) {
            const T* from = gradients_ + (part - 1) * k;
            for (Index j = 0; j < k; ++j) gradient[j] += from[j];
        }
        const double squares = sum.squares / double(batch_), global = sum.global / double(batch_), local = sum.local / double(batch_);
        constexpr double log_2_pi = 1.8378770664093454836;
        const double precision = 1 / (objective.gamma * objective.gamma);
        terms[0] = -0.5 * squares * precision - double(plan_.values) * (std::log(objective.gamma) + 0.5 * log_2_pi) - global - local;
        terms[1] = squares, terms[2] = global, terms[3] = local;
    }

  private:
    const VaePlan plan_;
    const Index batch_;
    bool large_ = false;
    const Index rows_, parts_;
    const Scratch<T> gradients_;
    std::vector<VaeTerms> terms_;
    std::vector<std::unique_ptr<VaeTile<T>>> tiles_;

    /// Few rows stay in the cache; BLAS wants many.
    Index tile_rows(const VaePlan& plan, Index batch) {
        plan.for_each_layer([&](const Affine& a) { large_ |= TileProducts<T>::is_large(a.in, a.out); });
        const Index most = large_ ? 512 : 32;
        return whole_registers<T>(batch <= 2 * most ? batch : most);
    }
};

/// Neighbours with a register more than there are.
template <class T> class Copied {
  public:
    explicit Copied(Index size) : memory_(size + Native<T>::size) { std::fill_n(memory_ + size, Native<T>::size, T(0)); }
    template <class U> explicit Copied(Matrix<const U> x) : Copied(x.rows * x.cols) {
        for (Index i = 0; i < x.rows; ++i)
            for (Index j = 0; j < x.cols; ++j) memory_[i * x.cols + j] = T(x.row(i)[j]);
    }
    operator T*() const { return memory_; }

  private:
    const Scratch<T> memory_;
};

/// Where a vector's elements are written as neighbours: in place, or in a copy that `finish` brings back.
template <class T> class Written {
  public:
    explicit Written(Vector<T> x) : x_(x), copy_(x.stride == 1 ? 0 : x.size) {}
    operator T*() const { return x_.stride == 1 ? x_.data : static_cast<T*>(copy_); }
    void finish() const {
        if (x_.stride != 1)
            for (Index j = 0; j < x_.size; ++j) x_[j] = copy_[j];
    }

  private:
    const Vector<T> x_;
    const Scratch<T> copy_;
};

template <class T> void vae_gradient(Vector<const T> parameters, const VaeBatch<T>& batch, const Autoencoder& a, VaeObjective objective,
                                     Vector<T> gradient, Vector<double> terms, int n_threads, const Blas& blas) {
    const Neighbours<T> p(parameters);
    const Copied<T> theta(batch.theta), t(batch.t), noise(batch.noise);
    const Written<T> g(gradient);
    double sums[4];
    VaeGradient<T>(a, batch.theta.rows, blas).run(p, {theta, t, noise}, objective, g, sums, n_threads);
    g.finish();
    for (int i = 0; i < 4; ++i) terms[i] = sums[i];
}

inline constexpr Index long_piece = 8192; // elements of a vector that one thread takes at once

/// On all threads: where `to` is fresh, the system clears its pages as each is first written, which takes longer than the copy.
template <class T> void copy_elements(Vector<const T> from, T* to, int n_threads) {
    const Index n = from.size, pieces = (n + long_piece - 1) / long_piece;
    for_blocks(pieces, block_count(pieces, 1), worthwhile(n_threads, double(n)), [&](Index, Index first, Index last) {
        for (Index j = first * long_piece; j < std::min(n, last * long_piece); ++j) to[j] = from[j];
    });
}

/// Sums the squares, always in the same order.
template <class T> double sum_of_squares(const T* x, Index n, int n_threads) {
    using V = Pack<double>;
    const Index pieces = (n + long_piece - 1) / long_piece, blocks = block_count(pieces, 1);
    double sums[max_blocks];
    for_blocks(pieces, blocks, worthwhile(n_threads, 2 * double(n)), [&](Index block, Index first, Index last) {
        V sum[4] = {V::all(0), V::all(0), V::all(0), V::all(0)};
        Index j = first * long_piece;
        const Index end = std::min(n, last * long_piece);
        for (; j + 4 * V::size <= end; j += 4 * V::size)
            for (int i = 0; i < 4; ++i) {
                const V v = V::load(x + j + i * V::size);
                sum[i] = sum[i] + v * v;
            }
        double rest = 0;
        for (; j < end; ++j) rest += double(x[j]) * double(x[j]);
        sums[block] = ((sum[0] + sum[1]) + (sum[2] + sum[3])).sum() + rest;
    });
    double total = 0;
    for (Index b = 0; b < blocks; ++b) total += sums[b];
    return total;
}

/// One step of Adam (beta 0.9 and 0.999, epsilon 1e-8) up the gradient, which is multiplied by `shrink`.
template <class T> void adam_up(T* parameters, T* m, T* v, const T* g, Index n, double shrink, double rate, double count, int n_threads) {
    const AdamUp<T> x{T(-rate / std::expm1(count * std::log(0.9))), T(-1 / std::expm1(count * std::log(0.999))), T(shrink)};
    const Index pieces = (n + long_piece - 1) / long_piece;
    for_blocks(pieces, block_count(pieces, 1), worthwhile(n_threads, 10 * double(n)), [&](Index, Index first, Index last) {
        const Index end = std::min(n, last * long_piece);
#pragma GCC ivdep
        for (Index j = first * long_piece; j < end; ++j) fedkern::adam_up(x, g[j], parameters[j], m[j], v[j]);
    });
}

/// Asks for the entries of a step, so that they come from memory while another step is at work.
inline void prefetch_entries(const DrawTable& table, U64 key, U32 step, Index batch) {
    constexpr Index line = 8; // numbers
    const Index numbers = std::min<Index>(table.length, 512); // of longer ones the processor fetches the rest by itself
    for (Index b = 0; b < batch; b += table.group) {
        const double* values = table.values + table_entry(table, b / table.group, step, key) * table.length;
        for (Index i = 0; i < numbers; i += line) __builtin_prefetch(values + i);
    }
}

/// The draws of a step, where they are many on several threads.
template <class T>
void draw_batch(const DrawTable& table, DrawKeys keys, U32 step, Index batch, T* theta, Index* entry, double* workspace, int n_threads) {
    const int threads = worthwhile(n_threads, double(batch) * double(table.length));
    if (threads <= 1) return table_draws(table, keys, step, batch, theta, entry, workspace);
    const Index groups = (batch + table.group - 1) / table.group;
    for_blocks(groups, block_count(groups, 1), threads, [&](Index, Index first, Index last) {
        const Scratch<double> own(draws_workspace(table));
        const Index begin = first * table.group, end = std::min(batch, last * table.group);
        table_draws(table, keys, step, begin, end, theta + begin * table.n, entry + begin, static_cast<double*>(own));
    });
}

/// Steps of the optimiser on fresh draws. The first value that is not finite ends them before it is applied: from there on the trace
/// is NaN.
template <class T> void vae_steps(const VaeState<const T>& from, const DrawTable& table, const VaeTraining& x, const Autoencoder& a,
                                  const VaeState<T>& to, Matrix<double> trace, int n_threads, const Blas& blas) {
    const Index k = from.parameters.size, B = x.batch, d = table.n, c = x.phi.cols, L = a.n_latents();
    const Written<T> parameters(to.parameters), m(to.moments.row(0)), v(to.moments.row(1));
    copy_elements<T>(from.parameters, parameters, n_threads);
    copy_elements<T>(from.moments.row(0), m, n_threads), copy_elements<T>(from.moments.row(1), v, n_threads);

    VaeGradient<T> objective(a, B, blas);
    const Copied<T> theta(B * d), t(B * c), noise(B * L);
    const Scratch<T> gradient(k);
    const Scratch<double> normals(B * L), workspace(draws_workspace(table));
    const Scratch<Index> entry(B);
    const DrawKeys keys = draw_keys(x.seed, x.chain);
    const U64 latents = stream_key(x.seed, Stream::latents, x.chain);

    Index s = 0;
    for (; s < x.rates.size; ++s) {
        const U32 step = x.step + U32(s);
        draw_batch(table, keys, step, B, static_cast<T*>(theta), static_cast<Index*>(entry), static_cast<double*>(workspace), n_threads);
        for (Index b = 0; b < B; ++b)
            for (Index i = 0; i < c; ++i) t[b * c + i] = T(x.phi.row(entry[b])[i]);
        if (s + 1 < x.rates.size) prefetch_entries(table, keys.entries, step + 1, B);
        fill_normal({normals, B * L}, {0, 0, 0, step}, latents);
        for (Index e = 0; e < B * L; ++e) noise[e] = T(normals[e]);

        double row[5];
        objective.run(parameters, {theta, t, noise}, {x.gamma, x.kl_weights[s]}, gradient, row, n_threads);
        row[4] = std::sqrt(sum_of_squares<T>(gradient, k, n_threads));
        if (!std::isfinite(row[0]) || !std::isfinite(row[4])) break;
        adam_up<T>(parameters, m, v, gradient, k, x.clip > 0 && row[4] > x.clip ? x.clip / row[4] : 1, x.rates[s], double(step) + 1,
                   n_threads);
        for (int i = 0; i < 5; ++i) trace.row(s)[i] = row[i];
    }
    for (; s < x.rates.size; ++s)
        for (int i = 0; i < 5; ++i) trace.row(s)[i] = math::not_a_number<double>();
    parameters.finish(), m.finish(), v.finish();
}

} // namespace FEDKERN_ISA
} // namespace fedkern
