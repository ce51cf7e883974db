//! One suite for all devices: each test runs on the interpreter, the CPU and, if there is one, a
//! GPU.

mod algebra;
mod arenas;
mod arguments;
mod attention;
mod attention_cases;
mod blas;
mod column_sums;
mod direct_writes;
mod eager;
mod einsum;
mod equations;
mod fingerprint;
mod fused;
mod fusion;
mod fuzz;
#[path = "../../../codegen/tests/fuzz/generate.rs"]
mod generate;
mod grad;
mod gradcheck;
mod index;
mod ir_kernels;
mod kernel_gradients;
mod layer_errors;
mod lengths;
mod long_rows;
mod masked_rows;
mod methods;
mod mlp;
mod modules;
mod native;
mod nvrtc;
mod ops;
mod padded;
mod random;
mod reported_bugs;
mod retraces;
mod rows;
mod runtime;
#[path = "../../../ir/tests/samples/mod.rs"]
mod samples;
mod scatter;
mod state;
mod sweep;
mod templates;
mod tiles;
mod tooling;
mod traces;

use bornite::{Device, Error};
use libtest_mimic::{Arguments, Completion, Failed, Trial};

/// Result of a test.
pub type Outcome = Result<(), Failed>;

type Body = fn(Device) -> Outcome;

const SUITE: [(&str, Body); 145] = [
    ("rows::equal_the_interpreter", rows::equal_the_interpreter),
    ("rows::casts_equal_the_interpreter", rows::casts_equal_the_interpreter),
    ("algebra::equal_the_interpreter", algebra::equal_the_interpreter),
    ("native::within_bounds", native::within_bounds),
    ("rows::bad_index_is_an_error", rows::bad_index_is_an_error),
    ("fuzz::random_kernels", fuzz::random_kernels),
    ("modules::launches", modules::launches),
    ("modules::immediate_and_deferred_launches_agree", modules::immediate_and_deferred_launches_agree),
    ("modules::traced_and_recorded", modules::traced_and_recorded),
    ("modules::index_error_changes_no_variable", modules::index_error_changes_no_variable),
    ("modules::mismatched_arguments_are_errors", modules::mismatched_arguments_are_errors),
    ("kernel_gradients::equal_those_of_tensor_ops", kernel_gradients::equal_those_of_tensor_ops),
    ("kernel_gradients::of_shared_elements_are_deterministic", kernel_gradients::of_shared_elements_are_deterministic),
    ("kernel_gradients::traced", kernel_gradients::traced),
    ("kernel_gradients::that_do_not_exist_are_errors", kernel_gradients::that_do_not_exist_are_errors),
    ("templates::elementwise", templates::elementwise),
    ("templates::reductions", templates::reductions),
    ("templates::tiles", templates::tiles),
    ("templates::rows", templates::rows),
    ("ops::elementwise", ops::elementwise),
    ("ops::negated_integers", ops::negated_integers),
    ("ops::broadcast", ops::broadcast),
    ("ops::reductions", ops::reductions),
    ("ops::products", ops::products),
    ("ops::views", ops::views),
    ("ops::empty_and_scalar", ops::empty_and_scalar),
    ("ops::softmax_of_special_values", ops::softmax_of_special_values),
    ("index::slices_and_concatenations", index::slices_and_concatenations),
    ("index::indices", index::indices),
    ("index::scatter_add", index::scatter_add),
    ("index::sorting", index::sorting),
    ("index::random_words", index::random_words),
    ("sweep::every_op", sweep::every_op),
    ("gradcheck::every_op", gradcheck::every_op),
    ("gradcheck::every_scalar_op", gradcheck::every_scalar_op),
    ("gradcheck::narrower_floats", gradcheck::narrower_floats),
    ("grad::known_answers", grad::known_answers),
    ("grad::adjacent_slices", grad::adjacent_slices),
    ("grad::checkpoints", grad::checkpoints),
    ("grad::second_order", grad::second_order),
    ("fused::kernels_in_graphs", fused::kernels_in_graphs),
    ("fused::kernels_in_traces", fused::kernels_in_traces),
    ("fused::kernel_errors", fused::kernel_errors),
    ("fused::fused_ops", fused::fused_ops),
    ("fused::routines", fused::routines),
    ("fused::implementations", fused::implementations),
    ("fused::adamw_steps", fused::adamw_steps),
    ("fused::adamw_options", fused::adamw_options),
    ("attention::sixteen_bit_floats_agree_with_f64", attention::sixteen_bit_floats_agree_with_f64),
    ("attention_cases::random_cases", attention_cases::random_cases),
    ("attention_cases::delays_change_nothing", attention_cases::delays_change_nothing),
    ("attention_cases::order_free_sums_agree_with_f64", attention_cases::order_free_sums_agree_with_f64),
    ("attention::packed_query_key_value", attention::packed_query_key_value),
    ("attention::masks_agree_with_f64", attention::masks_agree_with_f64),
    ("attention::extreme_masks", attention::extreme_masks),
    ("attention::masked_scores_are_not_stored", attention::masked_scores_are_not_stored),
    (
        "masked_rows::masks_hold_only_for_the_column_of_the_pass",
        masked_rows::masks_hold_only_for_the_column_of_the_pass,
    ),
    ("attention::leading_axes_broadcast", attention::leading_axes_broadcast),
    ("fusion::random_graphs", fusion::random_graphs),
    ("fusion::kernels", fusion::kernels),
    ("column_sums::attached_to_row_kernels", column_sums::attached_to_row_kernels),
    ("column_sums::views_of_an_output", column_sums::views_of_an_output),
    (
        "direct_writes::gradients_are_written_into_the_concatenation",
        direct_writes::gradients_are_written_into_the_concatenation,
    ),
    ("direct_writes::parts_with_other_readers", direct_writes::parts_with_other_readers),
    ("direct_writes::random_pieces", direct_writes::random_pieces),
    ("direct_writes::slice_of_a_variable", direct_writes::slice_of_a_variable),
    ("direct_writes::row_of_a_variable", direct_writes::row_of_a_variable),
    ("reported_bugs::graphs", reported_bugs::graphs),
    ("reported_bugs::traced_steps", reported_bugs::traced_steps),
    ("scatter::sums_by_index", scatter::sums_by_index),
    ("scatter::inside_reductions", scatter::inside_reductions),
    ("tiles::transposed", tiles::transposed),
    ("eager::plans_are_cached", eager::plans_are_cached),
    ("padded::cross_entropy", padded::cross_entropy),
    ("padded::targets_in_the_padding_are_errors", padded::targets_in_the_padding_are_errors),
    ("padded::arenas", padded::arenas),
    ("padded::products", padded::products),
    ("long_rows::equal_op_by_op", long_rows::equal_op_by_op),
    ("long_rows::updated_in_place", long_rows::updated_in_place),
    ("methods::every_scalar_op_is_a_method", methods::every_scalar_op_is_a_method),
    ("methods::promotion", methods::promotion),
    ("methods::reductions", methods::reductions),
    ("methods::shapes", methods::shapes),
    ("einsum::equations", einsum::equations),
    ("einsum::random_equations", einsum::random_equations),
    ("methods::operators", methods::operators),
    ("equations::solutions_and_inverses", equations::solutions_and_inverses),
    ("equations::transforms", equations::transforms),
    ("equations::quantiles", equations::quantiles),
    ("methods::activations", methods::activations),
    ("methods::layers", methods::layers),
    ("methods::images", methods::images),
    ("layer_errors::messages", layer_errors::messages),
    ("layer_errors::ignored_rows", layer_errors::ignored_rows),
    ("methods::attention", methods::attention),
    ("methods::losses", methods::losses),
    ("methods::gradient_of_zero_distance", methods::gradient_of_zero_distance),
    ("methods::copies_and_display", methods::copies_and_display),
    ("state::commit_is_atomic", state::commit_is_atomic),
    ("state::versions_never_change", state::versions_never_change),
    ("state::bytes_round_trip", state::bytes_round_trip),
    ("state::swap", state::swap),
    ("state::drop_frees_memory", state::drop_frees_memory),
    ("state::commits_are_atomic_for_other_threads", state::commits_are_atomic_for_other_threads),
    ("traces::repeat_and_retrace", traces::repeat_and_retrace),
    ("traces::results_outlive_the_next_call", traces::results_outlive_the_next_call),
    ("traces::old_values_outlive_the_step", traces::old_values_outlive_the_step),
    ("traces::eager_and_traced_mix", traces::eager_and_traced_mix),
    ("traces::results_are_received", traces::results_are_received),
    ("traces::captured_values", traces::captured_values),
    ("traces::scratch_is_shared", traces::scratch_is_shared),
    ("traces::updates_in_place", traces::updates_in_place),
    ("traces::random_order", traces::random_order),
    ("traces::errors_change_nothing", traces::errors_change_nothing),
    ("arguments::views_constants_and_repeated_tensors", arguments::views_constants_and_repeated_tensors),
    ("arguments::alternating_sets", arguments::alternating_sets),
    ("arguments::many_sets", arguments::many_sets),
    ("arguments::outputs_as_arguments", arguments::outputs_as_arguments),
    ("arguments::state_passed_through_arguments", arguments::state_passed_through_arguments),
    ("arguments::bounded_length", arguments::bounded_length),
    ("arguments::after_an_index_error", arguments::after_an_index_error),
    ("arguments::matrix_products", arguments::matrix_products),
    ("arguments::products_into_a_variable", arguments::products_into_a_variable),
    ("arguments::concurrent_calls", arguments::concurrent_calls),
    ("arguments::are_not_retained", arguments::are_not_retained),
    ("retraces::recently_used_traces_stay_cached", retraces::recently_used_traces_stay_cached),
    ("retraces::log_names_what_changed", retraces::log_names_what_changed),
    ("retraces::compiled_ahead", retraces::compiled_ahead),
    ("retraces::accumulate_and_apply", retraces::accumulate_and_apply),
    ("retraces::memory_is_constant", retraces::memory_is_constant),
    ("arenas::segment_tables", arenas::segment_tables),
    ("arenas::equal_separate_variables", arenas::equal_separate_variables),
    ("arenas::optimizer_is_one_kernel", arenas::optimizer_is_one_kernel),
    ("lengths::masks", lengths::masks),
    ("lengths::shorter_last_batch", lengths::shorter_last_batch),
    ("lengths::growing_cache", lengths::growing_cache),
    ("lengths::two_lengths", lengths::two_lengths),
    ("lengths::invalid_lengths", lengths::invalid_lengths),
    ("mlp::xor", mlp::xor),
    ("mlp::spiral", mlp::spiral),
    ("tooling::profiles_list_kernels_and_copies", tooling::profiles_list_kernels_and_copies),
    ("tooling::profiles_list_compilations", tooling::profiles_list_compilations),
    ("tooling::profiled_times_match_the_wall_clock", tooling::profiled_times_match_the_wall_clock),
    ("tooling::prepared_launches_equal_the_interpreter", tooling::prepared_launches_equal_the_interpreter),
    ("tooling::kernels_are_tuned", tooling::kernels_are_tuned),
];

fn main() {
    // Some tests run this program again in a child process.
    if let Some(passed) = runtime::run_child() {
        std::process::exit(if passed { 0 } else { 1 });
    }
    let mut arguments = Arguments::from_args();
    // Tests are parallel internally, and a GPU has one stream.
    arguments.test_threads.get_or_insert(2);
    let cuda = Device::cuda(0);
    let mut trials = nvrtc::trials();
    trials.extend(runtime::trials(cuda.is_ok(), bornite_cuda::nvrtc_version().is_ok()));
    trials.extend(blas::trials(cuda.is_ok()));
    trials.push(Trial::test("fused::fusion_can_be_switched_off", runtime::fusion_can_be_switched_off));
    for (name, body) in SUITE {
        for device in [Device::Interpreter, Device::cpu()] {
            let full = format!("{device}::{name}");
            trials.push(Trial::test(full.clone(), move || fingerprint::recorded(&full, || body(device))));
        }
        trials.push(match &cuda {
            Ok(device) => {
                let device = *device;
                Trial::test(format!("cuda::{name}"), move || body(device))
            }
            Err(_) => Trial::test(format!("cuda::{name}"), || Ok(())).with_ignored_flag(true),
        });
    }
    let huge = cuda.as_ref().ok().copied();
    let body = move || huge.map_or(Ok(Completion::ignored()), sweep::huge::indices_beyond_32_bits);
    trials.push(Trial::ignorable_test("cuda::sweep::indices_beyond_32_bits", body).with_ignored_flag(cuda.is_err()));
    if let Err(why) = &cuda {
        println!("skipped: all tests on cuda, since {}", brief(why));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// The first sentence of an error.
fn brief(error: &Error) -> String {
    let text = error.to_string();
    text.split(';').next().unwrap_or_default().to_owned()
}
