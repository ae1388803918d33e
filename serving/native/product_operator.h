// The operators of int8 matrix products: one with the name of ONNX Runtime's own, and others.

#pragma once

#include "dots.h"
#include "mapped.h"
#include "neon.h"
#include "operator.h"
#include "pairs.h"
#include "tiles.h"

#ifdef MACARON_PRODUCTS

#include <memory>
#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>

namespace macaron {

constexpr size_t kWeight = 1;  // the input with the weight

#ifdef MACARON_NEON

enum class Unit { kNone, kNeon };

inline Unit best_unit() { return Unit::kNeon; }

using ReadyRows = NeonRows;

#else

enum class Unit { kNone, kPairs, kDots, kTiles };

#ifdef MACARON_WIDE

inline Unit best_unit() {
  return tiles_work() ? Unit::kTiles : dots_work() ? Unit::kDots : Unit::kNone;
}

using OtherRows = TileRows;

#else

inline Unit best_unit() {
#ifdef MACARON_DOTS
  if (dots_work()) return Unit::kDots;
#endif
  return pairs_work() ? Unit::kPairs : Unit::kNone;
}

using OtherRows = PairRows;

#endif
#endif

// The processor's best unit for int8 products.
inline Unit product_unit() {
  static const Unit unit = best_unit();
  return unit;
}

inline bool products_work() { return product_unit() != Unit::kNone; }

#ifdef MACARON_NEON

inline PanelOrder panel_order() { return PanelOrder::kFours; }

#else

inline PanelOrder panel_order() {
  return product_unit() == Unit::kPairs ? PanelOrder::kPairs : PanelOrder::kFours;
}

// Rows [M,K] of 8 bits in the layout that the unit reads. `room` is memory for a copy.
class ReadyRows {
 public:
  ReadyRows(const uint8_t* rows, int64_t count, int64_t inputs, Aligned<uint8_t>& room) {
#ifdef MACARON_DOTS
    if (product_unit() == Unit::kDots) {
      dots_.emplace(rows, count, inputs, room);
      return;
    }
#endif
    others_.emplace(rows, count, inputs, room);
  }

  // Computes the columns of the panels in [first_panel, last_panel) of out [M,N].
  void multiply(const PackedWeight& weight, const Scales& scales, int64_t first_panel,
                int64_t last_panel, float* out) const {
#ifdef MACARON_DOTS
    if (dots_) {
      dots_->multiply(weight, scales, first_panel, last_panel, out);
      return;
    }
#endif
    others_->multiply(weight, scales, first_panel, last_panel, out);
  }

 private:
#ifdef MACARON_DOTS
  std::optional<DotRows> dots_;
#endif
  std::optional<OtherRows> others_;
};

#endif

// The kernel of a product, with its packed weight.
struct ProductKernel {
  const Operator& made_by;
  PackedWeight weight;
};

// The scales, zero point and bias of a product. Checks the shapes: rows [..,K] of 8 bits, their
// scales, those of the weight [K,N], the zero point of the rows (0 if missing) and, as input
// `added`, a bias [N], which may be missing.
inline Scales read_scales(const PackedWeight& weight, const Context& context, size_t added) {
  const Shape shape = context.shape(0);
  const int64_t count = rows_of(shape);
  const int64_t row_scales = size_of(context.shape(2)), scales_given = size_of(context.shape(3));
  if (shape.back() != weight.inputs() || (row_scales != 1 && row_scales != count) ||
      (scales_given != 1 && scales_given != weight.outputs()) ||
      (context.has(added) && size_of(context.shape(added)) != weight.outputs()))
    throw std::invalid_argument(
        "rows, their scales, weights' scales and bias must be [..,K], 1 or a row's "
        "each, 1 or N, and N");
  const int zero_point =
      context.has(4) ? number_of<uint8_t>(context, 4, "the zero point must be a single number") : 0;
  return {context.input<float>(2), row_scales != 1, context.input<float>(3), scales_given != 1,
          context.input<float>(added), zero_point};
}

// Calls `work` with ranges [first, last) that make up all panels, on several threads if there is
// enough work for them.
template <typename Work>
void share_panels(const PackedWeight& weight, const Context& context, int64_t rows, Work work) {
  // Less than kLeast weights, each counted once for every kTogether rows, is not worth a thread.
  constexpr int64_t kLeast = 200000, kTogether = 16;
  const int64_t size = weight.inputs() * weight.outputs() * pieces(rows, kTogether);
  const int64_t parts =
      std::clamp<int64_t>(size / kLeast, 1, std::min<int64_t>(weight.panels(), 16));
  const auto part = [&](size_t index) {
    work(index * weight.panels() / parts, (index + 1) * weight.panels() / parts);
  };
  if (parts == 1)
    part(0);
  else
    context.in_parallel(parts, part);
}

// rows [..,K] of 8 bits, weight [K,N], scales of both, zero point of the rows and, as input
// `added`, the bias [N], which may be missing -> [..,N]
inline void run_product(const ProductKernel& kernel, const Context& context, size_t added) {
  static thread_local Aligned<uint8_t> room;
  const PackedWeight& weight = kernel.weight;
  Shape shape = context.shape(0);
  const int64_t count = rows_of(shape);
  const Scales scales = read_scales(weight, context, added);
  const ReadyRows rows(context.input<uint8_t>(0), count, shape.back(), room);
  shape.back() = weight.outputs();
  float* out = context.output<float>(0, shape);
  share_panels(weight, context, count, [&](int64_t first, int64_t last) {
    rows.multiply(weight, scales, first, last, out);
  });
}

// The same for rows [2M,K], the second half of which is what the rounding of the first half left:
// -> [M,N], the sum of both products and the bias
inline void run_wide_product(const ProductKernel& kernel, const Context& context,
                             size_t added) {
  static thread_local Aligned<uint8_t> room;
  const PackedWeight& weight = kernel.weight;
  const Shape shape = context.shape(0);
  if (shape.size() != 2 || shape[0] % 2)
    throw std::invalid_argument("rows must be [2M,K]");
  Scales scales = read_scales(weight, context, added);
  scales.height = shape[0] / 2;
  const ReadyRows rows(context.input<uint8_t>(0), shape[0], shape[1], room);
  float* out = context.output<float>(0, {scales.height, weight.outputs()});
  share_panels(weight, context, shape[0], [&](int64_t first, int64_t last) {
    rows.multiply(weight, scales, first, last, out);
  });
}

// The order of a weight's numbers: [K,N], or [N,K] like a table in which ids are looked up.
enum class WeightOrder { kColumns, kTable };

// The description of operators whose second input is a weight that is packed before the first run.
template <WeightOrder order>
OperatorTable weight_table() {
  OperatorTable table = make_table();
  table.create_v2 = [](const OperatorTable* t, const void*, const void* info, void** kernel) {
    return guarded(of(t), [&] {
      const void* weight = constant_input(info, kWeight, "weights must be constants");
      const Shape shape = shape_of(runtime(), weight);
      require(shape.size() == 2 && size_of(shape) > 0,
              "weights must be [K,N], or [N,K] of a table, neither of them 0");
      auto made = std::make_unique<ProductKernel>(ProductKernel{of(t), PackedWeight(panel_order())});
      const int8_t* numbers = data_of<int8_t>(runtime(), weight);
      ReadOnce reading(numbers, size_of(shape));
      const auto read = [&](const int8_t* end, bool last) { reading.until(end, last); };
      if constexpr (order == WeightOrder::kTable) {
        require_few_inputs(shape[1]);
        made->weight.pack_table(numbers, shape[1], shape[0], read);
      } else {
        require_few_inputs(shape[0]);
        made->weight.pack(numbers, shape[0], shape[1], read);
      }
      *kernel = made.release();
    });
  };
  table.destroy = [](void* kernel) { delete static_cast<ProductKernel*>(kernel); };
  return table;
}

template <void (*run)(const ProductKernel&, const Context&)>
Status compute_product(void* kernel, void* context) {
  const ProductKernel& made = *static_cast<ProductKernel*>(kernel);
  return guarded_run(made.made_by, context, [&](const Context& given) { run(made, given); });
}

// Has the inputs of ONNX Runtime's own operator: the weights' zero point comes before the bias.
inline void product_op(const ProductKernel& kernel, const Context& context) {
  require(!context.has(5), "weights must have no zero point");
  run_product(kernel, context, 6);
}

// A product of ours: the bias, if there is one, is input 5.
inline void biased_product_op(const ProductKernel& kernel, const Context& context) {
  run_product(kernel, context, 5);
}

inline void wide_product_op(const ProductKernel& kernel, const Context& context) {
  run_wide_product(kernel, context, 5);
}

inline OperatorTable product_table() {
  OperatorTable table = weight_table<WeightOrder::kColumns>();
  table.input_kind = [](const OperatorTable*, size_t index) { return index < 4 ? 0 : 1; };
  table.compute_v2 = compute_product<product_op>;
  return table;
}

template <void (*run)(const ProductKernel&, const Context&),
          WeightOrder order = WeightOrder::kColumns>
OperatorTable own_table() {
  OperatorTable table = weight_table<order>();
  table.compute_v2 = compute_product<run>;
  return table;
}

// The operator that replaces ONNX Runtime's own.
inline Operator& product() {
  static Operator made{product_table(), "MatMulIntegerToFloat",
                       {kUint8, kInt8, kFloat, kFloat, kUint8, kInt8, kFloat}, {kFloat}, nullptr};
  return made;
}

// Products that ONNX Runtime does not have: with a bias (Biased), of activations of 16 bits (Wide),
// and with the table of a model whose input and output pieces have the same vectors (Tied).
inline std::array<Operator, 7>& own_products() {
  constexpr WeightOrder kTable = WeightOrder::kTable;
  const std::vector<ElementType> plain{kUint8, kInt8, kFloat, kFloat, kUint8};
  const std::vector<ElementType> biased{kUint8, kInt8, kFloat, kFloat, kUint8, kFloat};
  static std::array<Operator, 7> made{{
      {own_table<biased_product_op>(), "BiasedProduct", biased, {kFloat}, nullptr},
      {own_table<wide_product_op>(), "WideProduct", plain, {kFloat}, nullptr},
      {own_table<wide_product_op>(), "BiasedWideProduct", biased, {kFloat}, nullptr},
      {own_table<biased_product_op, kTable>(), "TiedProduct", plain, {kFloat}, nullptr},
      {own_table<biased_product_op, kTable>(), "BiasedTiedProduct", biased, {kFloat}, nullptr},
      {own_table<wide_product_op, kTable>(), "TiedWideProduct", plain, {kFloat}, nullptr},
      {own_table<wide_product_op, kTable>(), "BiasedTiedWideProduct", biased, {kFloat}, nullptr},
  }};
  return made;
}

}  // namespace macaron

#endif
