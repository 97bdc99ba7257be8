/* dmath.h - double-precision exp, log, power, sine and cosine of our own.
 *
 * libm's versions differ between releases and instruction sets in the last bit; these are made of
 * IEEE additions, multiplications and divisions in a fixed order, so that rotary tables and
 * sampling are the same on every machine.  Errors are below 2 ulp for exp and log and below
 * 2^-50 absolute for sin and cos with |x| < 2^20 (tests/unit/test_base.c holds them to it).
 */
#ifndef LODE_BASE_DMATH_H
#define LODE_BASE_DMATH_H

double lode_exp(double x);            /* overflows to infinity, underflows to 0 below -745 */
double lode_log(double x);            /* -infinity at 0, NaN below */
double lode_pow(double x, double y);  /* x > 0; exp(y log x), so ~|y log x| ulp */
void lode_sincos(double x, double *s, double *c);

#endif
