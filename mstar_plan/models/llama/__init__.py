"""Language models of the Llama family (Touvron et al. 2023): decoder, weight files, tokenizer and chat templates."""
