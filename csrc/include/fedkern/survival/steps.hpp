// In which order rows join the sums over who is at risk and leave them again, from the last time of a stratum backwards.
#pragma once
#include "values.hpp"

namespace fedkern {
inline namespace FEDKERN_ISA {
namespace survival {

/// The set behind the last of set k's stratum.
inline Index end_of_stratum(const SurvivalRows& rows, Index k) {
    const Index first = rows.first[k];
    do ++k;
    while (k < rows.ends.size && rows.first[k] == first);
    return k;
}

/// Where none enters late, every row is a step, and joins. Otherwise steps of a set are who has left since the set before, and then
/// who joins, in the rows' order; a row that is at risk at no set joins with weight 0.
class Steps {
  public:
    const bool leave;

    explicit Steps(const SurvivalRows& rows)
        : leave(rows.until.data != nullptr), rows_(rows), end_(leave ? rows.ends.size : 0), step_(leave ? sized() : 0) {
        if (leave) fill();
    }

    Index size() const { return !leave ? rows_.X.rows : rows_.ends.size ? end_[rows_.ends.size - 1] : 0; }
    /// The step at which the first row of set k joins, and that behind its last.
    Index begin(Index k) const { return end(k) - (rows_.ends[k] - joined_before(k)); }
    Index end(Index k) const { return leave ? end_[k] : rows_.ends[k]; }
    /// The first row that joins at set k.
    Index joined_before(Index k) const { return k && rows_.first[k - 1] == rows_.first[k] ? rows_.ends[k - 1] : rows_.first[k]; }

    FEDKERN_INLINE Index row(Index step) const { return leave ? Index(step_[step] / kinds) : step; }
    /// Of the row of a step, below 0 if it leaves.
    FEDKERN_INLINE double weight(Index step) const {
        if (!leave) return weight_of(rows_, step);
        const std::size_t kind = step_[step] % kinds;
        return weight_of(rows_, row(step)) * double((kind == joins) - (kind == leaves));
    }

  private:
    static constexpr std::size_t nothing = 0, joins = 1, leaves = 2, kinds = 4; // of steps

    /// use(row, the set at which it joins, the first at which it is not at risk or -1: it never leaves).
    template <class Use> FEDKERN_INLINE void for_rows(const Use& use) const {
        const SurvivalRows rows = rows_; // own: what `use` writes is none of them
        for (Index k = 0, stop; k < rows.ends.size; k = stop) {
            stop = end_of_stratum(rows, k);
            for (Index i = rows.first[k], end = rows.ends[stop - 1], set = k; i < end; ++i) {
                const Index until = rows.until[i];
                use(i, set, until > set && until < stop ? until : -1);
                set += i + 1 == rows.ends[set]; // no loop over a set's rows: how many there are is no processor's guess
            }
        }
    }

    /// How many steps there are; each set's end.
    Index sized() {
        std::fill(end_ + 0, end_ + rows_.ends.size, 0);
        for_rows([&](Index, Index, Index until) {
            if (until >= 0) ++end_[until];
        });
        Index steps = 0;
        for (Index k = 0; k < rows_.ends.size; ++k) end_[k] = steps += end_[k] + rows_.ends[k] - joined_before(k);
        return steps;
    }

    void fill() {
        std::vector<Index> left(rows_.ends.size); // where the next who leaves before a set goes
        for (Index k = 1; k < rows_.ends.size; ++k) left[k] = end_[k - 1];
        for_rows([&](Index i, Index k, Index until) {
            step_[end_[k] - rows_.ends[k] + i] = std::size_t(i) * kinds + (stays(rows_, i, k) ? joins : nothing);
            if (until >= 0) step_[left[until]++] = std::size_t(i) * kinds + leaves;
        });
    }

    const SurvivalRows& rows_;
    Scratch<Index> end_;
    Scratch<std::size_t> step_; // its row and its kind, in one number
};

} // namespace survival
} // namespace FEDKERN_ISA
} // namespace fedkern
