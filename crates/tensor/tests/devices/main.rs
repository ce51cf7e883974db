//! One suite for all devices: each body runs on the interpreter, the CPU and, where there is one, a GPU.

mod algebra;
mod arenas;
mod arguments;
mod attention;
mod blas;
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
mod into_place;
mod ir_kernels;
mod lengths;
mod long_rows;
mod methods;
mod mlp;
mod modules;
mod native;
mod nvrtc;
mod ops;
mod random;
mod reported;
mod retraces;
mod riders;
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

/// What a test body returns.
pub type Outcome = Result<(), Failed>;

type Body = fn(Device) -> Outcome;

const SUITE: [(&str, Body); 124] = [
    ("rows::equal_the_interpreter", rows::equal_the_interpreter),
    ("rows::casts_equal_the_interpreter", rows::casts_equal_the_interpreter),
    ("algebra::equal_the_interpreter", algebra::equal_the_interpreter),
    ("native::within_bounds", native::within_bounds),
    ("rows::bad_index_is_an_error", rows::bad_index_is_an_error),
    ("fuzz::random_kernels", fuzz::random_kernels),
    ("modules::launches", modules::launches),
    ("modules::at_once_or_later", modules::at_once_or_later),
    ("modules::traced_and_recorded", modules::traced_and_recorded),
    ("modules::a_bad_index_changes_nothing", modules::a_bad_index_changes_nothing),
    ("modules::what_does_not_fit_is_an_error", modules::what_does_not_fit_is_an_error),
    ("templates::elementwise", templates::elementwise),
    ("templates::reductions", templates::reductions),
    ("templates::tiles", templates::tiles),
    ("templates::rows", templates::rows),
    ("ops::elementwise", ops::elementwise),
    ("ops::turned_integers", ops::turned_integers),
    ("ops::broadcast", ops::broadcast),
    ("ops::reductions", ops::reductions),
    ("ops::products", ops::products),
    ("ops::views", ops::views),
    ("ops::empty_and_scalar", ops::empty_and_scalar),
    ("ops::softmax_at_extremes", ops::softmax_at_extremes),
    ("index::slices_and_joins", index::slices_and_joins),
    ("index::indices", index::indices),
    ("index::scattered", index::scattered),
    ("index::order", index::order),
    ("index::random_words", index::random_words),
    ("sweep::every_op", sweep::every_op),
    ("gradcheck::every_op", gradcheck::every_op),
    ("gradcheck::every_row", gradcheck::every_row),
    ("gradcheck::narrower_floats", gradcheck::narrower_floats),
    ("grad::known_answers", grad::known_answers),
    ("grad::of_neighbouring_slices", grad::of_neighbouring_slices),
    ("grad::checkpoints", grad::checkpoints),
    ("grad::second_order", grad::second_order),
    ("fused::kernels_in_graphs", fused::kernels_in_graphs),
    ("fused::kernels_in_traces", fused::kernels_in_traces),
    ("fused::kernels_with_mistakes", fused::kernels_with_mistakes),
    ("fused::fused_ops", fused::fused_ops),
    ("fused::routines", fused::routines),
    ("fused::spellings", fused::spellings),
    ("fused::adamw_steps", fused::adamw_steps),
    ("fused::adamw_options", fused::adamw_options),
    ("attention::in_tiles", attention::in_tiles),
    ("attention::parts_of_one_tensor", attention::parts_of_one_tensor),
    ("fusion::random_graphs", fusion::random_graphs),
    ("fusion::kernels", fusion::kernels),
    ("riders::sums_of_columns", riders::sums_of_columns),
    ("into_place::gradients_are_written_where_they_belong", into_place::gradients_are_written_where_they_belong),
    ("into_place::parts_with_other_readers", into_place::parts_with_other_readers),
    ("into_place::random_pieces", into_place::random_pieces),
    ("into_place::a_piece_of_a_variable", into_place::a_piece_of_a_variable),
    ("into_place::a_row_of_a_variable", into_place::a_row_of_a_variable),
    ("reported::graphs", reported::graphs),
    ("reported::steps", reported::steps),
    ("scatter::sums_by_index", scatter::sums_by_index),
    ("tiles::transposed", tiles::transposed),
    ("eager::plans_are_kept", eager::plans_are_kept),
    ("long_rows::equal_op_by_op", long_rows::equal_op_by_op),
    ("long_rows::updated_in_place", long_rows::updated_in_place),
    ("methods::every_row_is_a_method", methods::every_row_is_a_method),
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
    ("methods::attention", methods::attention),
    ("methods::losses", methods::losses),
    ("methods::gradient_of_no_distance", methods::gradient_of_no_distance),
    ("methods::copies_and_text", methods::copies_and_text),
    ("state::commit_is_whole_or_nothing", state::commit_is_whole_or_nothing),
    ("state::versions_never_change", state::versions_never_change),
    ("state::bytes_round_trip", state::bytes_round_trip),
    ("state::swap", state::swap),
    ("state::drop_frees_at_once", state::drop_frees_at_once),
    ("state::commits_are_seen_whole", state::commits_are_seen_whole),
    ("traces::repeat_and_retrace", traces::repeat_and_retrace),
    ("traces::results_outlive_the_next_call", traces::results_outlive_the_next_call),
    ("traces::versions_outlive_the_step", traces::versions_outlive_the_step),
    ("traces::eager_and_traced_mix", traces::eager_and_traced_mix),
    ("traces::captured_values", traces::captured_values),
    ("traces::scratch_is_shared", traces::scratch_is_shared),
    ("traces::updates_in_place", traces::updates_in_place),
    ("traces::random_order", traces::random_order),
    ("traces::errors_change_nothing", traces::errors_change_nothing),
    ("arguments::of_every_kind", arguments::of_every_kind),
    ("arguments::sets_in_turn", arguments::sets_in_turn),
    ("arguments::many_sets", arguments::many_sets),
    ("arguments::fed_back", arguments::fed_back),
    ("arguments::states_go_round", arguments::states_go_round),
    ("arguments::of_bounded_length", arguments::of_bounded_length),
    ("arguments::after_a_mistake", arguments::after_a_mistake),
    ("arguments::of_products", arguments::of_products),
    ("arguments::products_into_a_variable", arguments::products_into_a_variable),
    ("arguments::of_threads", arguments::of_threads),
    ("arguments::are_not_kept", arguments::are_not_kept),
    ("retraces::used_last_is_kept", retraces::used_last_is_kept),
    ("retraces::say_what_changed", retraces::say_what_changed),
    ("retraces::compiled_ahead", retraces::compiled_ahead),
    ("retraces::accumulate_and_apply", retraces::accumulate_and_apply),
    ("retraces::memory_stays_flat", retraces::memory_stays_flat),
    ("arenas::tables", arenas::tables),
    ("arenas::equal_separate_variables", arenas::equal_separate_variables),
    ("arenas::one_kernel", arenas::one_kernel),
    ("lengths::masks", lengths::masks),
    ("lengths::last_batches", lengths::last_batches),
    ("lengths::growing_cache", lengths::growing_cache),
    ("lengths::two_lengths", lengths::two_lengths),
    ("lengths::mistakes", lengths::mistakes),
    ("mlp::xor", mlp::xor),
    ("mlp::spiral", mlp::spiral),
    ("tooling::profiles_tell_kernels_and_copies", tooling::profiles_tell_kernels_and_copies),
    ("tooling::profiles_tell_compilations", tooling::profiles_tell_compilations),
    ("tooling::profiled_times_are_the_wall_clocks", tooling::profiled_times_are_the_wall_clocks),
    ("tooling::prepared_launches_give_the_interpreters_bits", tooling::prepared_launches_give_the_interpreters_bits),
    ("tooling::kernels_are_tuned", tooling::kernels_are_tuned),
];

fn main() {
    // Some tests run this program again, for what would spoil the process.
    if let Some(well) = runtime::run_child() {
        std::process::exit(if well { 0 } else { 1 });
    }
    let mut arguments = Arguments::from_args();
    // The bodies are parallel inside, and a GPU has one stream.
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
    let body = move || huge.map_or(Ok(Completion::ignored()), sweep::huge::more_than_32_bits_count);
    trials.push(Trial::ignorable_test("cuda::sweep::more_than_32_bits_count", body).with_ignored_flag(cuda.is_err()));
    if let Err(why) = &cuda {
        println!("skipped: everything on cuda, since {}", brief(why));
    }
    libtest_mimic::run(&arguments, trials).exit();
}

/// The first sentence of an error.
fn brief(error: &Error) -> String {
    let text = error.to_string();
    text.split(';').next().unwrap_or_default().to_owned()
}
