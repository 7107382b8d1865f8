#include "fedkern/polya_gamma.hpp"

#include "tables/rng.hpp"

namespace fedkern::tables::FEDKERN_ISA {

extern const RngTable rng = {
    .words = fill_words_in_parts,
    .uniform = fill_pairs_in_parts<fill_uniform>,
    .normal = fill_pairs_in_parts<fill_normal>,
    .exponential = fill_pairs_in_parts<fill_exponential>,
    .gamma = fill_gamma_in_parts,
    .inverse_gaussian = fill_inverse_gaussian_in_parts,
    .polya_gamma = fill_polya_gamma_in_parts,
    .counts = add_up_in_parts,
};

} // namespace fedkern::tables::FEDKERN_ISA
