# distutils: language = c++
# cython: language_level = 3
"""Normal draws into a memory view, whose strides Cython has in bytes."""

cdef extern from "fedkern/rng.hpp" namespace "fedkern" nogil:
    cdef cppclass Vector[T]:
        T* data
        ssize_t size, stride
    cdef struct Counter:
        unsigned item, draw, client, step
    void fill_normal(Vector[double] out, Counter first, unsigned long long key)


def fill(double[:] out, unsigned long long key):
    cdef Vector[double] elements
    cdef Counter first = Counter(0, 0, 0, 0)
    cdef ssize_t size = sizeof(double)
    if not out.shape[0]:
        return
    if <size_t>&out[0] % size or out.strides[0] % size:
        raise ValueError("out: is not aligned to its elements")
    elements.data = &out[0]
    elements.size = out.shape[0]
    elements.stride = out.strides[0] // size
    with nogil:
        fill_normal(elements, first, key)
