/* mul_types_parts.h - of mul_types.h, those whose groups are summed in parts (V_PARTS of mul_many_vnni.h). */
MUL(q5_k, 256, .top = 31, .groups = 8, .runs = 2, .minima = 1)
MUL(q6_k, 256, .top = 63, .groups = 16, .runs = 4, .bias = 32)
