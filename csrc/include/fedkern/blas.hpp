// BLAS and LAPACK as a table of function pointers, which the owner of the process fills (fedkern: from SciPy). Nothing is linked.
#pragma once
#include <type_traits>

#include "view.hpp"

namespace fedkern {

/// Fortran routines with 32-bit integers, matrices by columns.
struct Blas {
    template <class... P> using Routine = void (*)(P*...);
    template <class T> using Gemm = Routine<char, char, int, int, int, T, T, int, T, int, T, T, int>;
    template <class T> using Gemv = Routine<char, int, int, T, T, int, T, int, T, T, int>;

    Gemm<double> dgemm;
    Gemm<float> sgemm;
    Gemv<double> dgemv;
    Gemv<float> sgemv;
    Routine<char, char, int, int, double, double, int, double, double, int> dsyrk;
    Routine<char, char, char, int, double, int, double, int> dtrsv, dtrmv;
    Routine<char, char, char, char, int, int, double, double, int, double, int> dtrsm, dtrmm;
    Routine<char, int, double, int, int> dpotrf, dpotri;

    /// use(name, is_lapack, routine) for each of them.
    template <class Use> void for_each(const Use& use) {
        use("dgemm", false, dgemm), use("sgemm", false, sgemm), use("dgemv", false, dgemv), use("sgemv", false, sgemv);
        use("dsyrk", false, dsyrk), use("dtrsv", false, dtrsv), use("dtrmv", false, dtrmv), use("dtrsm", false, dtrsm);
        use("dtrmm", false, dtrmm), use("dpotrf", true, dpotrf), use("dpotri", true, dpotri);
    }
};

/// An argument of a Fortran routine: the address of a number's copy, or an array's own.
template <class P> class FortranArgument {
  public:
    template <class A> FortranArgument(A argument) {
        if constexpr (std::is_pointer_v<A>)
            address_ = const_cast<P*>(argument);
        else
            value_ = P(argument), address_ = &value_;
    }
    FortranArgument(const FortranArgument&) = delete;
    operator P*() { return address_; }

  private:
    P value_{};
    P* address_;
};

/// call(blas.dgemm, 'N', 'T', m, n, k, 1.0, a, lda, b, ldb, 0.0, c, ldc): numbers by value, arrays by pointer.
template <class... P, class... A> FEDKERN_INLINE void call(void (*routine)(P*...), A... arguments) {
    static_assert(sizeof...(P) == sizeof...(A), "as many arguments as the routine has");
    routine(FortranArgument<P>(arguments)...);
}

} // namespace fedkern
