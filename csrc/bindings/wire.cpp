// The quick half of fedkern.transports.codec: it makes and opens frames where everything is as it should be, and answers None where it
// is not. The codec then finds out what is wrong and says so.
#include "fedkern/wire.hpp"
#include "units/table.hpp"

#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <vector>

namespace fedkern {
namespace py = pybind11;
using py::detail::npy_api;

namespace {

using wire::Header;

struct Field {
    py::str name;
    char type;                         // i int, f float, a array of doubles, b bytes
    std::vector<Py_intptr_t> shape;    // of an array
    std::size_t start, words, longest; // from the beginning of the frame; of bytes their greatest number
};

constexpr std::size_t longest_message = std::size_t{1} << 40; // words

struct Layout {
    std::uint16_t kind;
    std::size_t total;
    std::vector<Field> fields;
};

py::object layout(std::uint16_t kind, const py::object& fields) {
    auto* made = new Layout{kind, sizeof(Header), {}};
    py::capsule owner(made, "fedkern.wire.layout", [](void* p) { delete static_cast<Layout*>(p); });
    for (const py::handle& item : fields) {
        const auto parts = item.cast<py::tuple>(); // name, type, sizes
        const auto type = parts[1].cast<std::string>();
        if (parts.size() != 3 || type.size() != 1 || std::string("ifab").find(type) == std::string::npos)
            throw py::value_error("layout: a field is (name, one of i f a b, sizes)");
        std::size_t words = 1;
        std::vector<Py_intptr_t> shape;
        for (const py::handle& size : parts[2]) {
            shape.push_back(size.cast<Py_intptr_t>());
            const auto n = static_cast<std::size_t>(shape.back());
            if (shape.back() < 0 || (n > 0 && words > longest_message / n)) throw py::value_error("layout: a size is out of bounds");
            words *= n;
        }
        const std::size_t longest = words;
        if (type == "b") words = 1 + (longest + 7) / 8;
        made->fields.push_back({parts[0].cast<py::str>(), type[0], shape, made->total, words, longest});
        made->total += 8 * words;
    }
    return owner;
}

const Layout& known(const py::object& layout) {
    const auto* found = static_cast<const Layout*>(PyCapsule_GetPointer(layout.ptr(), "fedkern.wire.layout"));
    if (!found) throw py::error_already_set();
    return *found;
}

// Writes the value of a field and adds its words to the frame's sum; false if it is not of the wire's types.
bool put(const Field& field, PyObject* value, unsigned char* frame, std::uint64_t& sum) {
    unsigned char* to = frame + field.start;
    const auto first = static_cast<std::uint32_t>(field.start / 8);
    switch (field.type) {
    case 'i': {
        if (!PyLong_CheckExact(value)) return false;
        int overflow = 0;
        const std::int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
        std::memcpy(to, &number, 8);
        sum += wire::sum(to, 1, first);
        return !overflow;
    }
    case 'f': {
        if (!PyFloat_CheckExact(value)) return false;
        const double number = PyFloat_AS_DOUBLE(value);
        std::memcpy(to, &number, 8);
        sum += wire::sum(to, 1, first);
        return true;
    }
    case 'b': {
        if (!PyBytes_CheckExact(value)) return false;
        const std::int64_t length = PyBytes_GET_SIZE(value);
        if (static_cast<std::size_t>(length) > field.longest) return false;
        std::memset(to, 0, 8 * field.words);
        std::memcpy(to, &length, 8);
        std::memcpy(to + 8, PyBytes_AS_STRING(value), static_cast<std::size_t>(length));
        sum += wire::sum(to, field.words, first);
        return true;
    }
    default: {
        if (!py::isinstance<py::array_t<double, 0>>(value)) return false;
        const auto* array = py::detail::array_proxy(value);
        if (!(array->flags & npy_api::NPY_ARRAY_C_CONTIGUOUS_) || array->nd != static_cast<int>(field.shape.size())) return false;
        for (int d = 0; d < array->nd; ++d)
            if (array->dimensions[d] != field.shape[static_cast<std::size_t>(d)]) return false;
        sum += kernels().frames.copy(to, array->data, field.words, first);
        return true;
    }
    }
}

// Memory of large frames that was given back, for the next of the same size: fresh pages are cleared and mapped one by one, which may
// cost more than to fill them. A block belongs to one capsule, whose end gives it back, on whatever thread that is.
class Blocks {
  public:
    static constexpr std::size_t smallest = std::size_t{1} << 16, most = std::size_t{1} << 25; // bytes of one; of all that wait

    struct Block {
        std::size_t size;
        void* data;
    };

    Block take(std::size_t size) {
        const std::lock_guard lock(mutex_);
        for (std::size_t i = waiting_.size(); i-- > 0;) // the latest is still in a cache
            if (waiting_[i].size == size) {
                const Block found = waiting_[i];
                waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
                held_ -= size;
                return found;
            }
        return {size, ::operator new(size, alignment)};
    }

    void give(Block block) {
        const std::lock_guard lock(mutex_);
        waiting_.push_back(block);
        held_ += block.size;
        std::size_t old = 0;
        for (; held_ > most; ++old) {
            held_ -= waiting_[old].size;
            ::operator delete(waiting_[old].data, alignment);
        }
        waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<std::ptrdiff_t>(old));
    }

  private:
    static constexpr std::align_val_t alignment{64};
    std::mutex mutex_; // no Python runs and no other lock is taken under it
    std::vector<Block> waiting_; // the oldest first
    std::size_t held_ = 0;
};

Blocks& blocks() {
    static auto* const all = new Blocks; // frames may outlive what is destroyed at the end
    return *all;
}

// Memory for a frame, with whatever is in it: a bytearray, or a memoryview of a block.
py::object room(std::size_t size) {
    if (size < Blocks::smallest) {
        auto made = py::reinterpret_steal<py::object>(PyByteArray_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
        if (!made) throw py::error_already_set();
        return made;
    }
    auto block = std::make_unique<Blocks::Block>(blocks().take(size));
    const py::capsule owner(block.get(), [](void* p) {
        const std::unique_ptr<Blocks::Block> back(static_cast<Blocks::Block*>(p));
        blocks().give(*back);
    });
    const py::array_t<unsigned char> bytes(static_cast<py::ssize_t>(size), static_cast<unsigned char*>(block.release()->data), owner);
    auto made = py::reinterpret_steal<py::object>(PyMemoryView_FromObject(bytes.ptr()));
    if (!made) throw py::error_already_set();
    return made;
}

// The buffer of a frame, for as long as this lives.
struct Bytes {
    Py_buffer view{};
    explicit Bytes(const py::object& frame) {
        if (PyObject_GetBuffer(frame.ptr(), &view, PyBUF_SIMPLE)) throw py::error_already_set();
    }
    ~Bytes() { PyBuffer_Release(&view); }
    Bytes(const Bytes&) = delete;
    Bytes& operator=(const Bytes&) = delete;
    [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(view.len); }
    [[nodiscard]] unsigned char* data() const { return static_cast<unsigned char*>(view.buf); }
};

// An entry of a dictionary, or nothing. Without the interpreter's lock another thread may take it out: it is held here.
py::object item(const py::object& values, const py::str& name) {
#if PY_VERSION_HEX >= 0x030D0000
    PyObject* value = nullptr;
    PyDict_GetItemRef(values.ptr(), name.ptr(), &value);
    return py::reinterpret_steal<py::object>(value);
#else
    return py::reinterpret_borrow<py::object>(PyDict_GetItemWithError(values.ptr(), name.ptr()));
#endif
}

py::object encode(const py::object& layout, std::uint32_t client, std::uint32_t flags, const py::object& values) {
    const Layout& l = known(layout);
    if (!PyDict_Check(values.ptr())) throw py::type_error("values: needs a dict");
    py::object made = room(l.total);
    unsigned char* frame = Bytes(made).data(); // `made` stays where it is
    std::uint64_t sum = 0;
    for (const Field& field : l.fields) {
        const py::object value = item(values, field.name);
        if (!value || !put(field, value.ptr(), frame, sum)) return py::none();
    }
    Header header{{}, wire::version, l.kind, client, flags, l.total - sizeof(Header), 0};
    std::memcpy(header.magic, wire::magic, 4);
    header.checksum = sum + wire::sum(&header, 3, 0);
    std::memcpy(frame, &header, sizeof header);
    return made;
}

// The value of a field; nothing if it is not what it should be. Arrays are read-only views, kept alive by `owner`.
py::object get(const Field& field, unsigned char* frame, bool finite, const py::object& owner) {
    unsigned char* from = frame + field.start;
    if (field.type == 'a') {
        if (!finite && !wire::finite(from, field.words)) return {};
        auto& api = npy_api::get();
        PyObject* doubles = api.PyArray_DescrFromType_(npy_api::NPY_DOUBLE_);
        auto array =
            py::reinterpret_steal<py::object>(api.PyArray_NewFromDescr_(api.PyArray_Type_, doubles, static_cast<int>(field.shape.size()),
                                                                        field.shape.data(), nullptr, from, 0, nullptr));
        if (!array || api.PyArray_SetBaseObject_(array.ptr(), py::object(owner).release().ptr())) throw py::error_already_set();
        return array;
    }
    std::int64_t number;
    std::memcpy(&number, from, 8);
    if (field.type == 'i') return py::reinterpret_steal<py::object>(PyLong_FromLongLong(number));
    if (field.type == 'f') {
        if (!finite && !wire::finite(from, 1)) return {};
        double value;
        std::memcpy(&value, from, 8);
        return py::reinterpret_steal<py::object>(PyFloat_FromDouble(value));
    }
    if (number < 0 || static_cast<std::size_t>(number) > field.longest) return {};
    for (std::size_t i = 8 + static_cast<std::size_t>(number); i < 8 * field.words; ++i)
        if (from[i]) return {};
    return py::reinterpret_steal<py::object>(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(from + 8), number));
}

py::object decode(const py::object& layout, const py::object& frame, std::uint32_t n_clients) {
    const Layout& l = known(layout);
    const Bytes bytes(frame);
    if (bytes.size() != l.total || reinterpret_cast<std::uintptr_t>(bytes.data()) % 8) return py::none();
    Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (std::memcmp(header.magic, wire::magic, 4) != 0 || header.version != wire::version || header.kind != l.kind ||
        header.client >= n_clients || header.flags > wire::last || header.length != l.total - sizeof(Header))
        return py::none();
    const auto [sum, finite] = kernels().frames.check(bytes.data() + sizeof(Header), header.length / 8, sizeof(Header) / 8);
    if (header.checksum != sum + wire::sum(bytes.data(), 3, 0)) return py::none();
    // What arrays look at must not be released through them, as a memoryview could be that is their base: a capsule holds it.
    auto held = py::reinterpret_steal<py::object>(PyMemoryView_FromObject(frame.ptr()));
    if (!held) throw py::error_already_set();
    const py::capsule owner(static_cast<const void*>(held.ptr()), [](void* view) { Py_DECREF(static_cast<PyObject*>(view)); });
    held.release();
    py::dict values;
    for (const Field& field : l.fields) {
        const py::object value = get(field, bytes.data(), finite, owner); // where not all is finite: ints and bytes may not look it
        if (!value) return py::none();
        if (PyDict_SetItem(values.ptr(), field.name.ptr(), value.ptr())) throw py::error_already_set();
    }
    return py::make_tuple(header.client, values);
}

py::object readdress(const py::object& frame, std::uint32_t client) {
    const Bytes bytes(frame);
    if (bytes.size() < sizeof(Header)) throw py::value_error("frame: shorter than a header");
    py::object copy = room(bytes.size());
    unsigned char* data = Bytes(copy).data();
    std::memcpy(data, bytes.data(), bytes.size());
    Header header;
    std::memcpy(&header, data, sizeof header);
    header.checksum -= wire::sum(data, 3, 0);
    header.client = client;
    header.checksum += wire::sum(&header, 3, 0);
    std::memcpy(data, &header, sizeof header);
    return copy;
}

std::uint64_t checksum(const py::object& frame) {
    const Bytes bytes(frame);
    if (bytes.size() < sizeof(Header)) throw py::value_error("frame: shorter than a header");
    return wire::checksum(bytes.data(), bytes.size());
}

} // namespace

void bind_wire(py::module_& m) {
    m.doc() = "The quick half of fedkern.transports.codec.";
    m.def("layout", &layout, py::arg("kind"), py::arg("fields"));
    m.def("encode", &encode, py::arg("layout"), py::arg("client"), py::arg("flags"), py::arg("values"));
    m.def("decode", &decode, py::arg("layout"), py::arg("frame"), py::arg("n_clients"));
    m.def("readdress", &readdress, py::arg("frame"), py::arg("client"));
    m.def("room", &room, py::arg("size"));
    m.def("checksum", &checksum, py::arg("frame"));
}

} // namespace fedkern
