// A program: a whole graph that runs in one call, by the same operators as in ONNX Runtime and
// without its work between them.
//
// The operators get their tensors from a table of functions, as from ONNX Runtime (runtime.h); a
// program has a table of its own.

#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <locale>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "lines.h"
#include "mapped.h"
#include "operator.h"
#include "pool.h"
#include "standard.h"

namespace macaron {

// A tensor, in the layout of serving/runtime/cpu_graphs.py. `data` is null for an output that is not
// wanted.
struct Tensor {
  void* data = nullptr;
  int64_t type = 0, count = 0;
  std::array<int64_t, 6> axes{};
};

// Memory for a tensor, which grows as needed and is reused from run to run.
class Buffer {
 public:
  void* take(int64_t bytes) {
    if (bytes > size_) {
      size_ = pieces(bytes, kLine) * kLine;
      memory_.reset(std::aligned_alloc(kLine, size_));
      if (!memory_) {
        size_ = 0;
        throw std::runtime_error("no memory for a tensor of " + std::to_string(bytes) + " bytes");
      }
    }
    return memory_.get();
  }

 private:
  struct Free {
    void operator()(void* memory) const { std::free(memory); }
  };
  int64_t size_ = 0;
  std::unique_ptr<void, Free> memory_;
};

// An attribute. A real number comes as the bits of a double: how digits are read depends on the
// process's locale.
struct Number {
  bool real = false;
  int64_t bits = 0;
};

using Numbers = std::map<std::string, Number>;  // attributes by name

// An operator of a program, with its kernel. Values have numbers; -1 is an input that is missing.
struct Node {
  const OperatorTable* table = nullptr;
  Shape (*view)(const StandardAttributes&, const Context&) = nullptr;
  std::vector<ElementType> input_types, output_types;
  bool any_number = false;  // of inputs, all of the same type
  bool any_outputs = false;
  bool writes_first = false;  // into the memory of its first input, if that is bound to its output
  int unread = -1;  // an input that must be missing
  std::unique_ptr<void, void (*)(void*)> kernel{nullptr, [](void*) {}};
  std::vector<int> inputs, outputs;
};

// What the operators of a program see of one node, while it is made and while it runs.
struct NodeInfo {
  const Node& node;
  const Numbers& numbers;
  const std::vector<Tensor>& values;
  size_t constants_from, constants_to;
};

// The memory of one run.
struct Workspace {
  std::vector<Tensor> values;
  std::vector<Buffer> slots;
};

class Program;

struct Call {
  const Program& program;
  Workspace& space;
  const Tensor* wanted;  // the outputs of the program
  const Node& node;
};

class Program {
 public:
  // Reads a program. `text` has the numbers of inputs, constants, values and outputs, then the types
  // of the inputs and the numbers of the values that are the outputs. Each further line is a node:
  // the name of its operator; how many inputs it has, and their values; the same for its outputs;
  // how many attributes it has, and of each the name, whether it is real, and its bits. Values are
  // numbered from 0: inputs, constants, others. `find` gives the operator of a name. Runs share
  // their work out to `threads` threads, of which the calling one is the first.
  template <typename Find>
  Program(const char* text, const Tensor* constants, size_t threads, Find find)
      : threads_(threads) {
    std::istringstream in(text);
    in.imbue(std::locale::classic());
    size_t count = 0, outputs = 0, values = 0;
    in >> inputs_ >> count >> values >> outputs;
    require(in && inputs_ + count <= values, "the program has no head");
    values_.resize(values);
    std::copy(constants, constants + count, values_.begin() + inputs_);
    for (size_t i = 0; i < count; ++i)
      require_size({constants[i].axes.data(), size_t(constants[i].count)});
    for (size_t i = 0; i < inputs_; ++i) in >> values_[i].type;
    constants_to_ = inputs_ + count;
    made_.assign(constants_to_, true);
    made_.resize(values, false);
    place_.assign(values, -1);
    for (size_t i = 0; i < outputs; ++i) {
      const int value = read_value(in);
      require(value >= int(constants_to_) && place_[value] < 0,
              "an output must be named once, and be that of a node");
      place_[value] = i;
    }
    for (std::string name; in >> name;) add(in, name, find);
    for (size_t value = 0; value < place_.size(); ++value)
      require(place_[value] < 0 || made_[value], "no node makes an output");
    require_whole_caches();
    assign_slots();
  }

  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  // Runs on these inputs. Outputs whose `data` is not null are written there; they must have the
  // shapes given.
  void run(const Tensor* inputs, const Tensor* wanted) {
    std::unique_ptr<Workspace> space = take();
    for (size_t i = 0; i < inputs_; ++i)
      require(inputs[i].type == values_[i].type, "an input has another type of numbers than it had");
    for (size_t i = 0; i < inputs_; ++i) require_size({inputs[i].axes.data(), size_t(inputs[i].count)});
    std::copy(inputs, inputs + inputs_, space->values.begin());
    const Within within(table());
    for (const Node& node : nodes_) {
      Call call{*this, *space, wanted, node};
      if (node.view)
        look(call);
      else
        finish(node.table->compute_v2(node.kernel.get(), &call));
    }
    give(std::move(space));
  }

 private:
  // While it lives, the operators of this thread get their tensors from a program.
  struct Within {
    explicit Within(const Runtime& own) : before(program_runtime) { program_runtime = &own; }
    ~Within() { program_runtime = before; }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;
    const Runtime* before;
  };

  int read_value(std::istream& in) const {
    int value = -1;
    in >> value;
    require(in && value >= -1 && value < int(values_.size()), "the program names no value");
    return value;
  }

  template <typename Find>
  void add(std::istream& in, const std::string& name, Find find) {
    Node node;
    size_t least = 0, most = 0, count = 0;
    find(name, node, least, most);
    require(node.table, "the program has an unknown operator");
    in >> count;
    for (size_t i = 0; in && i < count; ++i) {
      node.inputs.push_back(read_value(in));
      const int value = node.inputs.back();
      require(value < 0 ? i >= least && !node.any_number : bool(made_[value]),
              "an input is missing");
      require(value < 0 || node.unread != int(i), "an operator cannot read one of its inputs");
    }
    require(count >= least && count <= most, "an operator has too few or too many inputs");
    int shared = 0;  // the type of the inputs that must have the same
    for (size_t i = 0; i < count; ++i) {
      const int value = node.inputs[i];
      if (value < 0) continue;
      int wanted = node.input_types[node.any_number ? 0 : i];
      const int type = values_[value].type;
      if (wanted == kNumber) {
        if (!shared && (type == kFloat || type == kInt64)) shared = type;
        wanted = shared;
        require(shared, "an input has no numbers that its operator knows");
      }
      require(wanted == kAny || wanted == type,
              "an input has another type of numbers than its operator expects");
    }
    in >> count;
    for (size_t i = 0; in && i < count; ++i) {
      const int value = read_value(in);
      require(value >= 0 && !made_[value], "two nodes have the same output");
      made_[value] = true;
      node.outputs.push_back(value);
    }
    // An operator writes all its outputs, wanted or not; those of a Split are as many as it has.
    while (node.outputs.size() < node.output_types.size()) {
      node.outputs.push_back(values_.size());
      values_.emplace_back();
      made_.push_back(true);
      place_.push_back(-1);
    }
    require(node.outputs.size() == node.output_types.size() || node.any_outputs,
            "an operator has too many outputs");
    for (size_t i = 0; i < node.outputs.size(); ++i)
      values_[node.outputs[i]].type = type_of(node, i, shared);
    Numbers numbers;
    in >> count;
    for (size_t i = 0; in && i < count; ++i) {
      std::string key;
      Number value;
      in >> key >> value.real >> value.bits;
      numbers[key] = value;
    }
    require(bool(in), "the program ends too early");
    const NodeInfo info{node, numbers, values_, inputs_, constants_to_};
    {
      const Within within(table());
      void* made = nullptr;
      finish(node.table->create_v2(node.table, nullptr, &info, &made));
      node.kernel = {made, node.table->destroy};
    }
    nodes_.push_back(std::move(node));
  }

  // The type of an output of a node.
  int type_of(const Node& node, size_t output, int shared) const {
    const int type = node.output_types[std::min(output, node.output_types.size() - 1)];
    return type == kAny ? values_[node.inputs.at(0)].type : type == kNumber ? shared : type;
  }

  // Refuses a program in which a node reads a cache after another has written into it.
  void require_whole_caches() const {
    std::vector<bool> written(values_.size(), false);
    for (const Node& node : nodes_) {
      for (int value : node.inputs) require(value < 0 || !written[value], "a cache is read too late");
      if (node.writes_first) written[node.inputs[0]] = place_[node.outputs[0]] >= 0;
    }
  }

  // Gives each value that a node makes a slot of memory, which a later value gets when no node
  // reads it any more. A view keeps the slot of what it views.
  void assign_slots() {
    std::vector<size_t> last(values_.size(), 0);
    std::vector<int> root(values_.size());
    for (size_t i = 0; i < root.size(); ++i) root[i] = i;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      const Node& node = nodes_[n];
      for (int value : node.outputs) last[value] = n;
      if (is_view(node)) root[node.outputs[0]] = root[node.inputs[0]];
      for (int value : node.inputs)
        if (value >= 0) last[root[value]] = n;
    }
    slot_.assign(values_.size(), -1);
    std::vector<int> free;
    for (size_t n = 0; n < nodes_.size(); ++n) {
      const Node& node = nodes_[n];
      for (int value : node.outputs) {
        if (is_view(node)) continue;
        if (free.empty()) free.push_back(slots_++);
        slot_[value] = free.back();
        free.pop_back();
      }
      for (size_t value = constants_to_; value < values_.size(); ++value)
        if (slot_[value] >= 0 && last[value] == n) free.push_back(slot_[value]);
    }
  }

  // Whether the output of a node is its input's memory. An output of the program has its own.
  bool is_view(const Node& node) const { return node.view && place_[node.outputs[0]] < 0; }

  // The output of a view is its input with another shape.
  void look(Call& call) {
    const Context context(table(), &call);
    const auto& kernel = *static_cast<const StandardKernel*>(call.node.kernel.get());
    const Shape shape = call.node.view(kernel.attributes, context);
    require_size(shape);
    const Tensor& from = call.space.values[call.node.inputs[0]];
    const int value = call.node.outputs[0];
    if (!is_view(call.node)) {
      const int64_t bytes = size_of(shape) * width_of(from.type);
      char* out = context.output<char>(0, shape);
      if (bytes) std::memcpy(out, from.data, bytes);
      return;
    }
    Tensor& to = call.space.values[value];
    to = from;
    to.count = shape.size();
    std::copy(shape.begin(), shape.end(), to.axes.begin());
  }

  // The memory of an output of a node.
  void* output(const Call& call, size_t index, const int64_t* axes, size_t count) const {
    const Shape shape(axes, count);
    require_size(shape);
    const int value = call.node.outputs.at(index);
    Tensor& to = call.space.values[value];
    to.type = values_[value].type;
    to.count = count;
    std::copy(shape.begin(), shape.end(), to.axes.begin());
    const int place = place_[value];
    if (place >= 0 && call.wanted[place].data) {
      const Tensor& wanted = call.wanted[place];
      require(wanted.type == to.type && shape == Shape(wanted.axes.data(), wanted.count),
              "an output has another shape than is wanted");
      to.data = wanted.data;
    } else {
      to.data = call.space.slots[slot_[value]].take(std::max<int64_t>(
          1, size_of(shape) * width_of(to.type)));
    }
    return to.data;
  }

  std::unique_ptr<Workspace> take() {
    {
      const std::lock_guard<std::mutex> guard(lock_);
      if (!spaces_.empty()) {
        std::unique_ptr<Workspace> space = std::move(spaces_.back());
        spaces_.pop_back();
        return space;
      }
    }
    auto space = std::make_unique<Workspace>();
    space->values = values_;
    space->slots.resize(slots_);
    return space;
  }

  // Keeps the memory of a run for the next one.
  void give(std::unique_ptr<Workspace> space) {
    const std::lock_guard<std::mutex> guard(lock_);
    spaces_.push_back(std::move(space));
  }

  static void finish(Status status) {
    if (!status) return;
    const std::unique_ptr<std::string> message(static_cast<std::string*>(status));
    throw std::runtime_error(*message);
  }

  // The table of functions by which operators get the tensors of a program.
  static const Runtime& table();

  size_t threads_, inputs_ = 0, constants_to_ = 0, slots_ = 0;
  std::vector<Tensor> values_;  // with the constants
  std::vector<bool> made_;
  std::vector<int> place_, slot_;
  std::vector<Node> nodes_;
  std::mutex lock_;
  std::vector<std::unique_ptr<Workspace>> spaces_;
};

inline const Runtime& Program::table() {
  static const std::array<void*, Runtime::kPlaces> functions = [] {
    std::array<void*, Runtime::kPlaces> all{};
    const auto set = [&](int place, auto* function) {
      all[place] = reinterpret_cast<void*>(function);
    };
    set(Runtime::kCreateStatus, +[](int, const char* message) -> Status {
      return new std::string(message);
    });
    set(Runtime::kReleaseStatus, +[](Status status) { delete static_cast<std::string*>(status); });
    set(Runtime::kGetInputCount, +[](const void* context, size_t* found) -> Status {
      *found = static_cast<const Call*>(context)->node.inputs.size();
      return nullptr;
    });
    set(Runtime::kGetOutputCount, +[](const void* context, size_t* found) -> Status {
      *found = static_cast<const Call*>(context)->node.outputs.size();
      return nullptr;
    });
    set(Runtime::kGetInput, +[](const void* context, size_t index, const void** found) -> Status {
      const Call& call = *static_cast<const Call*>(context);
      const int value = index < call.node.inputs.size() ? call.node.inputs[index] : -1;
      *found = value < 0 ? nullptr : &call.space.values[value];
      return nullptr;
    });
    set(Runtime::kGetOutput, +[](void* context, size_t index, const int64_t* axes, size_t count,
                                 void** found) -> Status {
      const Call& call = *static_cast<const Call*>(context);
      call.program.output(call, index, axes, count);
      *found = &call.space.values[call.node.outputs[index]];
      return nullptr;
    });
    set(Runtime::kGetTensorMutableData, +[](void* value, void** found) -> Status {
      *found = static_cast<Tensor*>(value)->data;
      return nullptr;
    });
    set(Runtime::kGetTypeAndShapeReference,
        +[](const void* value, int* type, const int64_t** axes, size_t* count) -> Status {
          const Tensor& tensor = *static_cast<const Tensor*>(value);
          *type = tensor.type;
          *axes = tensor.axes.data();
          *count = tensor.count;
          return nullptr;
        });
    set(Runtime::kParallelFor, +[](const void* context, void (*work)(void*, size_t), size_t count,
                                   size_t, void* all) -> Status {
      share(static_cast<const Call*>(context)->program.threads_, count, work, all);
      return nullptr;
    });
    set(Runtime::kGetConstantInput,
        +[](const void* info, size_t index, int* constant, const void** found) -> Status {
          const NodeInfo& own = *static_cast<const NodeInfo*>(info);
          const size_t value = index < own.node.inputs.size() ? own.node.inputs[index] : -1;
          *constant = value >= own.constants_from && value < own.constants_to;
          *found = *constant ? &own.values[value] : nullptr;
          return nullptr;
        });
    set(Runtime::kGetAttributeInt, +[](const void* info, const char* name, int64_t* found) -> Status {
      const Numbers& numbers = static_cast<const NodeInfo*>(info)->numbers;
      const auto own = numbers.find(name);
      if (own == numbers.end() || own->second.real) return new std::string("no such attribute");
      *found = own->second.bits;
      return nullptr;
    });
    set(Runtime::kGetAttributeFloat, +[](const void* info, const char* name, float* found) -> Status {
      const Numbers& numbers = static_cast<const NodeInfo*>(info)->numbers;
      const auto own = numbers.find(name);
      if (own == numbers.end() || !own->second.real) return new std::string("no such attribute");
      double value;
      std::memcpy(&value, &own->second.bits, sizeof value);
      *found = static_cast<float>(value);
      return nullptr;
    });
    return all;
  }();
  static const Runtime made(functions.data());
  return made;
}

}  // namespace macaron
