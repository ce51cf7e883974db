fn main() {
    for file in std::env::args().skip(1) {
        let text = std::fs::read_to_string(&file).unwrap();
        match bornite_lang::cuda::Module::parse(&file, &text) {
            Err(e) => println!("{e}\n"),
            Ok(m) => for k in m.kernels() {
                let mut r = bornite_lang::Request::new([2,2,1],[64,1,1]); r.default_length = Some(1000); r.shared_bytes = 1024;
                let name = if k.is_template { format!("{}<float, 64>", k.name) } else { k.name };
                match m.kernel(&name, &r) { Err(e) => println!("{e}\n"), Ok(_) => {} }
            }
        }
    }
}
