// What cuBLASLt can give at GPT-2 124M's shapes (B=64, T=1024, bf16) when every algorithm that its
// heuristic returns is timed, not only the first. Prints JSON lines like the Python scripts here.
//
//   nvcc -O2 -std=c++17 -arch=native cublaslt_search.cu -lcublasLt -o cublaslt_search
//   ./cublaslt_search > cublaslt_search.jsonl

#include <cublasLt.h>
#include <cuda_bf16.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

// Ends the program where a call of CUDA or cuBLASLt fails; both have 0 for success.
#define CHECK(call)                                                                       \
    do {                                                                                  \
        const int status = static_cast<int>(call);                                        \
        if (status != 0) {                                                                \
            std::fprintf(stderr, "%s:%d: error %d in %s\n", __FILE__, __LINE__, status, #call); \
            std::exit(1);                                                                 \
        }                                                                                 \
    } while (0)

using Bf16 = __nv_bfloat16;

constexpr long kTokens = 64 * 1024;
constexpr size_t kWorkspaceBytes = size_t{256} << 20;
constexpr int kMaxAlgorithms = 64;
constexpr int kSamples = 7;

struct Layer {
    const char* name;
    long inputs, outputs;
    int count;  // how many the model has
    bool bias, gelu;
};

constexpr Layer kLayers[] = {
    {"qkv", 768, 2304, 12, true, false},
    {"attn_proj", 768, 768, 12, true, false},
    {"fc", 768, 3072, 12, true, true},
    {"fc_proj", 3072, 768, 12, true, false},
    {"lm_head", 768, 50304, 1, false, false},
};

enum class Pass { Forward, ForwardGelu, DataGradient, WeightGradient };

// Values in -1..1 by a hash: a product of zeros runs faster than one of data.
__global__ void fill(Bf16* values, size_t count, unsigned seed) {
    const size_t stride = size_t{gridDim.x} * blockDim.x;
    for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
        unsigned hash = static_cast<unsigned>(i) * 2654435761u ^ seed;
        hash ^= hash >> 15;
        hash *= 2246822519u;
        hash ^= hash >> 13;
        values[i] = __float2bfloat16((hash & 0xffff) / 32768.f - 1.f);
    }
}

Bf16* random_values(size_t count, unsigned seed) {
    Bf16* values;
    CHECK(cudaMalloc(&values, count * sizeof(Bf16)));
    fill<<<2048, 256>>>(values, count, seed);
    CHECK(cudaGetLastError());
    return values;
}

// A layer's tensors, row-major: x [tokens, inputs], w [outputs, inputs], y [tokens, outputs].
struct Tensors {
    Bf16 *x, *w, *y, *bias, *before_gelu;

    explicit Tensors(const Layer& layer)
        : x(random_values(kTokens * layer.inputs, 1)),
          w(random_values(layer.outputs * layer.inputs, 2)),
          y(random_values(kTokens * layer.outputs, 3)),
          bias(random_values(layer.outputs, 4)),
          before_gelu(random_values(kTokens * layer.outputs, 5)) {}
    Tensors(const Tensors&) = delete;
    ~Tensors() {
        for (Bf16* pointer : {x, w, y, bias, before_gelu}) cudaFree(pointer);
    }
};

// An operand as cuBLASLt sees it: a row-major matrix is the column-major one of its transpose.
struct Operand {
    Bf16* values;
    long rows, columns;
    cublasOperation_t op;
};

struct Product {
    Operand a, b, c;
};

Product product_of(const Layer& layer, Pass pass, const Tensors& t) {
    constexpr auto N = CUBLAS_OP_N, T = CUBLAS_OP_T;
    const long in = layer.inputs, out = layer.outputs;
    switch (pass) {
        case Pass::DataGradient:  // dx = dy w
            return {{t.w, in, out, N}, {t.y, out, kTokens, N}, {t.x, in, kTokens, N}};
        case Pass::WeightGradient:  // dw = dy^T x
            return {{t.x, in, kTokens, N}, {t.y, out, kTokens, T}, {t.w, in, out, N}};
        default:  // y = x w^T
            return {{t.w, in, out, T}, {t.x, in, kTokens, N}, {t.y, out, kTokens, N}};
    }
}

template <typename T>
void set(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const T& value) {
    CHECK(cublasLtMatmulDescSetAttribute(desc, attribute, &value, sizeof value));
}

void set_epilogue(cublasLtMatmulDesc_t desc, const Layer& layer, Pass pass, const Tensors& t) {
    const bool gelu = pass == Pass::ForwardGelu;
    if (!gelu && !(pass == Pass::Forward && layer.bias)) return;
    set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE,
        gelu ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_BIAS);
    set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, t.bias);
    if (gelu) {
        set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, t.before_gelu);
        set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, static_cast<int64_t>(layer.outputs));
    }
}

cublasLtMatrixLayout_t layout_of(const Operand& operand) {
    cublasLtMatrixLayout_t layout;
    CHECK(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, operand.rows, operand.columns,
                                     operand.rows));
    return layout;
}

// The median time of a launch; nothing where the first one fails.
template <typename Launch>
std::optional<float> median_ms(const Launch& launch) {
    if (launch() != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    CHECK(launch());
    cudaEvent_t begin, end;
    CHECK(cudaEventCreate(&begin));
    CHECK(cudaEventCreate(&end));
    std::vector<float> times(kSamples);
    for (float& time : times) {
        CHECK(cudaEventRecord(begin));
        CHECK(launch());
        CHECK(cudaEventRecord(end));
        CHECK(cudaEventSynchronize(end));
        CHECK(cudaEventElapsedTime(&time, begin, end));
    }
    CHECK(cudaEventDestroy(begin));
    CHECK(cudaEventDestroy(end));
    std::sort(times.begin(), times.end());
    return times[kSamples / 2];
}

struct Found {
    float first_ms, best_ms;  // by the first algorithm that runs, and by the fastest
    int best, returned;
};

Found search(cublasLtHandle_t handle, void* workspace, const Layer& layer, Pass pass,
             const Tensors& tensors) {
    const Product product = product_of(layer, pass, tensors);
    const Operand &a = product.a, &b = product.b, &c = product.c;
    cublasLtMatmulDesc_t desc;
    CHECK(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(desc, CUBLASLT_MATMUL_DESC_TRANSA, a.op);
    set(desc, CUBLASLT_MATMUL_DESC_TRANSB, b.op);
    set_epilogue(desc, layer, pass, tensors);
    const auto layout_a = layout_of(a), layout_b = layout_of(b), layout_c = layout_of(c);

    cublasLtMatmulPreference_t preference;
    CHECK(cublasLtMatmulPreferenceCreate(&preference));
    CHECK(cublasLtMatmulPreferenceSetAttribute(preference,
                                               CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &kWorkspaceBytes, sizeof kWorkspaceBytes));
    std::vector<cublasLtMatmulHeuristicResult_t> results(kMaxAlgorithms);
    Found found{0, 0, -1, 0};
    CHECK(cublasLtMatmulAlgoGetHeuristic(handle, desc, layout_a, layout_b, layout_c, layout_c,
                                         preference, kMaxAlgorithms, results.data(),
                                         &found.returned));
    const float alpha = 1, beta = 0;
    for (int i = 0; i < found.returned; i++) {
        const auto time = median_ms([&] {
            return cublasLtMatmul(handle, desc, &alpha, a.values, layout_a, b.values, layout_b,
                                  &beta, c.values, layout_c, c.values, layout_c, &results[i].algo,
                                  workspace, kWorkspaceBytes, nullptr);
        });
        if (!time) continue;
        if (found.best < 0) found.first_ms = *time;
        if (found.best < 0 || *time < found.best_ms) found.best_ms = *time, found.best = i;
    }
    CHECK(cublasLtMatmulPreferenceDestroy(preference));
    for (auto layout : {layout_a, layout_b, layout_c}) CHECK(cublasLtMatrixLayoutDestroy(layout));
    CHECK(cublasLtMatmulDescDestroy(desc));
    return found;
}

const char* name_of(const Layer& layer, Pass pass) {
    switch (pass) {
        case Pass::Forward: return layer.bias ? "fwd_bias" : "fwd";
        case Pass::ForwardGelu: return "fwd_bias_gelu_aux";
        case Pass::DataGradient: return "dgrad";
        case Pass::WeightGradient: return "wgrad";
    }
    return "";
}

void print_machine() {
    cudaDeviceProp properties;
    CHECK(cudaGetDeviceProperties(&properties, 0));
    int runtime = 0;
    CHECK(cudaRuntimeGetVersion(&runtime));
    std::printf("{\"machine\": {\"gpu\": \"%s\", \"torch\": null, \"cuda\": \"%d.%d\", "
                "\"device\": \"cuda\", \"cublaslt\": %zu}}\n",
                properties.name, runtime / 1000, runtime % 1000 / 10, cublasLtGetVersion());
}

int main() {
    print_machine();
    cublasLtHandle_t handle;
    CHECK(cublasLtCreate(&handle));
    void* workspace;
    CHECK(cudaMalloc(&workspace, kWorkspaceBytes));

    double first_ms = 0, best_ms = 0;
    for (const Layer& layer : kLayers) {
        const Tensors tensors(layer);
        const double flops = 2.0 * kTokens * layer.inputs * layer.outputs;
        for (Pass pass : {Pass::Forward, Pass::ForwardGelu, Pass::DataGradient,
                          Pass::WeightGradient}) {
            if (pass == Pass::ForwardGelu && !layer.gelu) continue;
            const Found found = search(handle, workspace, layer, pass, tensors);
            if (found.best < 0) {
                std::fprintf(stderr, "skipped %s %s: none of %d algorithms ran\n", layer.name,
                             name_of(layer, pass), found.returned);
                continue;
            }
            std::printf("{\"op\": \"gpt2_matmul_bf16_%s_%s\", \"ms\": %.5f, \"first_ms\": %.5f, "
                        "\"tflops\": %.1f, \"best\": %d, \"returned\": %d}\n",
                        layer.name, name_of(layer, pass), found.best_ms, found.first_ms,
                        flops / found.best_ms / 1e9, found.best, found.returned);
            std::fflush(stdout);
            if (pass == Pass::ForwardGelu) continue;  // the plain forward is in the sum already
            first_ms += layer.count * found.first_ms;
            best_ms += layer.count * found.best_ms;
        }
    }
    std::printf("{\"op\": \"gpt2_matmul_bf16_step\", \"ms\": %.3f, \"first_ms\": %.3f}\n", best_ms,
                first_ms);
    CHECK(cudaFree(workspace));
    CHECK(cublasLtDestroy(handle));
}
