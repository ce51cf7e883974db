#include <cstdint>

// Signed fixed-point numbers with FRAC fractional bits.
template <int FRAC>
class Fixed {
    int32_t raw_;

public:
    static constexpr int32_t one = 1 << FRAC;
    __device__ Fixed() : raw_(0) {}
    __device__ explicit Fixed(int32_t raw) : raw_(raw) {}
    __device__ static Fixed fromFloat(float v) { return Fixed(__float2int_rn(v * one)); }
    __device__ int32_t raw() const { return raw_; }
    __device__ Fixed& operator+=(const Fixed& o) {
        raw_ += o.raw_;
        return *this;
    }
    __device__ friend Fixed operator*(const Fixed& a, const Fixed& b) {
        return Fixed((int32_t)(((int64_t)a.raw_ * b.raw_) >> FRAC));
    }
    __device__ bool operator<(const Fixed& o) const { return raw_ < o.raw_; }
};

// A finite impulse response filter in 16.16.
__global__ void fixed_point(const float* signal, const float* taps, int ntaps, int32_t* out, int n) {
    using fx = Fixed<16>;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    fx acc;
    for (int k = 0; k < ntaps; ++k) {
        int at = i - k;
        if (at < 0) break;
        acc += fx::fromFloat(signal[at]) * fx::fromFloat(taps[k]);
    }
    const fx limit(fx::one / 2);
    out[i] = limit < acc ? limit.raw() : acc.raw();
}
