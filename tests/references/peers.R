# Prints what programs of R compute of lung.csv (60 rows of survival::lung), a line each: row of conventions.toml, program, version, number.
# Rscript peers.R FOLDER
folder <- commandArgs(trailingOnly = TRUE)[1]
d <- read.csv(file.path(folder, "lung.csv"), stringsAsFactors = TRUE)
d$a <- (d$age - 60) / 10
d$level <- pmin(d$ecog, 2)
d$share <- (d$karno - 1) / 100
d$y <- d$karno / 10 # successes of 10 trials
draws <- as.matrix(read.csv(file.path(folder, "chains.csv")))
beta <- c(0.3, -0.5)

say <- function(row, package, value, convention = "") {
  name <- if (convention == "") package else paste0(package, ": ", convention)
  version <- as.character(packageVersion(package))
  cat(row, paste("R", name), version, format(value, digits = 15), sep = "\t", fill = FALSE)
  cat("\n")
}
quiet <- function(x) suppressMessages(suppressWarnings(x))
# A row that fails in one program is told, and the others go on.
part <- function(expression) tryCatch(quiet(expression), error = function(e) message(conditionMessage(e)))

suppressPackageStartupMessages(library(survival))
control <- coxph.control(iter.max = 0) # the log-likelihood where it begins
loglik <- function(fit) quiet(fit)$loglik[2]
part({
  say("cox-ties", "survival", loglik(coxph(Surv(month, event) ~ a + female, d, init = beta, control = control)), "ties = efron")
  say("cox-ties", "survival", loglik(coxph(Surv(month, event) ~ a + female, d, init = beta, control = control, ties = "breslow")),
    "ties = breslow")
  say("cox-entry", "survival", loglik(coxph(Surv(entry, month, event) ~ a + female, d, init = beta, control = control)))
  say("cox-weights", "survival", loglik(coxph(Surv(month, event) ~ a + female, d, init = beta, control = control, weights = weight)))
  say("cox-strata", "survival", loglik(coxph(Surv(month, event) ~ a + female + strata(ward), d, init = beta, control = control)))
  say("cox-offset", "survival", loglik(coxph(Surv(month, event) ~ a + offset(0.1 * ecog), d, init = beta[1], control = control)))
  d$near <- ifelse(seq_len(60) %% 2 == 0, (d$month + 0.3) / 10 - 0.03, d$month / 10) # ties but for rounding
  say("cox-timefix", "survival", loglik(coxph(Surv(near, event) ~ a + female, d, init = beta, control = control)), "timefix = TRUE")
  exact <- coxph.control(iter.max = 0, timefix = FALSE)
  say("cox-timefix", "survival", loglik(coxph(Surv(near, event) ~ a + female, d, init = beta, control = exact)), "timefix = FALSE")
  fit <- quiet(coxph(Surv(month, event) ~ a + female, d, init = beta, control = control))
  say("cox-baseline", "survival", tail(basehaz(fit, centered = FALSE)$hazard, 1), "basehaz(centered = FALSE)")
  say("cox-baseline", "survival", tail(basehaz(fit)$hazard, 1), "basehaz()")
  say("cox-concordance", "survival", unname(concordance(fit)$concordance))
  entered <- quiet(coxph(Surv(entry, month, event) ~ a + female, d, init = beta, control = control))
  say("cox-concordance-entry", "survival", unname(concordance(entered)$concordance))
  ridge <- coxph(Surv(month, event) ~ ridge(age, theta = 1, scale = FALSE), d)
  say("cox-ridge", "survival", unname(coef(ridge)), "ridge(theta = 1, scale = FALSE)")
  say("cox-ridge", "survival", unname(coef(coxph(Surv(month, event) ~ ridge(age, theta = 1, scale = TRUE), d))), "ridge(theta = 1)")
  aft <- survreg(Surv(month, event) ~ a + female, d, dist = "weibull")
  say("weibull-shape", "survival", 1 / aft$scale, "1 / scale")
  say("weibull-shape", "survival", aft$scale, "scale")
  say("weibull-slope", "survival", unname(-coef(aft)[2] / aft$scale), "-coefficient / scale")
  say("weibull-slope", "survival", unname(coef(aft)[2]), "coefficient")
  say("weibull-loglik", "survival", aft$loglik[2])
  d$upper <- ifelse(d$event == 1, d$month + 1, NA)
  say("interval-loglik", "survival", survreg(Surv(month, upper, type = "interval2") ~ a + female, d, dist = "weibull")$loglik[2])
})
part({
  m <- lm(meal ~ a + female, d)
  say("gaussian-loglik", "stats", as.numeric(logLik(m)), "logLik(lm): variance by n")
  say("gaussian-sigma", "stats", sigma(m), "sigma: divisor n - p")
  b <- glm(event ~ a + female, binomial, d)
  say("bernoulli-loglik", "stats", as.numeric(logLik(b)))
  bb <- glm(cbind(y, 10 - y) ~ a + female, binomial, d)
  say("binomial-loglik", "stats", as.numeric(logLik(bb)), "with binomial coefficients")
  say("binomial-loglik", "stats", -deviance(bb) / 2, "-deviance / 2")
  p <- glm(loss ~ a + female, poisson, d)
  say("poisson-loglik", "stats", as.numeric(logLik(p)))
  say("dispersion", "stats", sum(residuals(p, "pearson")^2) / p$df.residual, "Pearson / (n - p)")
  say("dispersion", "stats", deviance(p) / p$df.residual, "deviance / (n - p)")
  g <- glm(meal ~ a + female, Gamma("log"), d)
  say("gamma-shape", "MASS", MASS::gamma.shape(g)$alpha, "gamma.shape: maximum likelihood")
  say("gamma-shape", "stats", 1 / summary(g)$dispersion, "1 / dispersion of glm: Pearson")
  say("gamma-loglik", "stats", as.numeric(logLik(g)), "logLik(glm): dispersion = deviance / n")
  mu <- fitted(g)
  k <- MASS::gamma.shape(g)$alpha
  say("gamma-loglik", "stats", sum(dgamma(d$meal, k, k / mu, log = TRUE)), "dgamma at gamma.shape")
  nb <- MASS::glm.nb(loss ~ a + female, d)
  say("negative-binomial-r", "MASS", nb$theta, "theta")
  say("negative-binomial-loglik", "MASS", as.numeric(logLik(nb)))
  say("scale-divisor", "base", as.numeric(attr(scale(d$age), "scaled:scale")), "scale: divisor n - 1")
  say("factor-order", "base", which(levels(factor(c("b", "A", "a", "B"))) == "a"), "place of 'a' among a, A, b, B, in this locale")
  say("poly", "stats", unname(fitted(lm(meal ~ poly(age, 2), d))[1]), "fitted value")
  say("poly-slope", "stats", unname(coef(lm(meal ~ poly(age, 2), d))[2]), "coefficient of the line")
  suppressPackageStartupMessages(library(splines))
  say("ns-knots", "splines", unname(fitted(lm(meal ~ ns(age, knots = c(58, 66), Boundary.knots = c(45, 80)), d))[1]))
  say("bs-knots", "splines", unname(coef(lm(meal ~ bs(age, knots = c(58, 66), Boundary.knots = c(45, 80)), d))[2]))
  say("ns-df", "splines", unname(attr(ns(d$age, df = 3), "knots")[1]), "first knot: a quantile of the rows")
  say("quantile", "stats", unname(quantile(draws[, 1], 0.05)), "type 7")
})
part({
  o <- MASS::polr(ordered(level) ~ a + female, d)
  say("ordinal-slope", "MASS", unname(coef(o)[1]), "polr: logit P(y <= k) = zeta - eta")
  say("ordinal-threshold", "MASS", unname(o$zeta[1]), "polr")
  say("ordinal-loglik", "MASS", as.numeric(logLik(o)))
  say("ordinal-probit-loglik", "MASS", as.numeric(logLik(MASS::polr(ordered(level) ~ a + female, d, method = "probit"))))
  c1 <- ordinal::clm(ordered(level) ~ a + female, data = d)
  say("ordinal-slope", "ordinal", unname(coef(c1)["a"]), "clm")
  v <- VGAM::vglm(ordered(level) ~ a + female, VGAM::cumulative(parallel = TRUE), d)
  say("ordinal-slope", "VGAM", unname(VGAM::coef(v)["a"]), "cumulative: logit P(y <= k) = zeta + eta")
  n <- nnet::multinom(factor(level) ~ a + female, d, trace = FALSE, reltol = 1e-14, maxit = 500)
  say("multinomial-slope", "nnet", coef(n)["1", "a"], "level 1 against the first")
  say("multinomial-loglik", "nnet", as.numeric(logLik(n)))
  vm <- VGAM::vglm(factor(level) ~ a + female, VGAM::multinomial(), d)
  say("multinomial-slope", "VGAM", unname(VGAM::coef(vm)["a:2"]), "level 1 against the last")
})
part({
  z <- pscl::zeroinfl(loss ~ a + female | 1, d, EM = FALSE, reltol = 1e-14)
  say("zero-inflated-loglik", "pscl", as.numeric(logLik(z)))
  say("zero-inflated-share", "pscl", unname(plogis(coef(z, "zero"))), "probability of a structural zero")
  say("zero-inflated-share", "pscl", mean(d$loss == 0), "share of zeros in the rows")
  zn <- pscl::zeroinfl(loss ~ a + female | 1, d, dist = "negbin", reltol = 1e-14)
  say("zero-inflated-nb-loglik", "pscl", as.numeric(logLik(zn)))
})
part({
  suppressPackageStartupMessages(library(lme4))
  pirls <- glmer(y / 10 ~ a + (1 | ward), d, binomial, weights = trials, nAGQ = 25)
  laplace <- glmer(y / 10 ~ a + (1 | ward), d, binomial, weights = trials, nAGQ = 1)
  say("mixed-quadrature", "lme4", unname(sqrt(unlist(VarCorr(pirls)))), "sd of groups, nAGQ = 25")
  say("mixed-quadrature", "lme4", unname(sqrt(unlist(VarCorr(laplace)))), "sd of groups, nAGQ = 1 (Laplace)")
  ml <- lmer(meal ~ a + (1 | ward), d, REML = FALSE)
  say("lmer-loglik", "lme4", as.numeric(logLik(ml)), "REML = FALSE")
  say("lmer-loglik", "lme4", as.numeric(logLik(lmer(meal ~ a + (1 | ward), d))), "REML = TRUE")
})
part({
  x <- matrix(draws[, 1], ncol = 4) # 4 chains
  say("rhat", "posterior", posterior::rhat(x), "rank-normalised, split")
  say("rhat", "posterior", posterior::rhat_basic(x), "rhat_basic: split alone")
  say("ess-bulk", "posterior", posterior::ess_bulk(x), "ess_bulk")
  say("ess-bulk", "posterior", posterior::ess_basic(x), "ess_basic")
  say("mcse-mean", "posterior", posterior::mcse_mean(x))
  short <- x[1:8, ]
  say("ess-short", "posterior", posterior::ess_bulk(short), "4 chains of 8 draws")
  p <- quiet(loo::psis(draws[, 2], r_eff = NA))
  say("psis-k", "loo", unname(p$diagnostics$pareto_k), "psis of log ratios")
})
part({
  edges <- rbind(c(1, 2), c(2, 3), c(4, 5)) # a row of three areas beside a pair
  Q <- matrix(0, 5, 5)
  Q[edges] <- Q[edges[, 2:1]] <- -1
  diag(Q) <- -rowSums(Q)
  scaled <- function(Q) exp(mean(log(diag(MASS::ginv(Q)))))
  say("icar-scale", "MASS", scaled(Q[1:3, 1:3]), "geometric mean of ginv's diagonal, by component")
  say("icar-scale", "MASS", scaled(Q), "the same over the whole map")
})
part({
  suppressPackageStartupMessages(library(spdep))
  pairs <- rbind(c(1, 2), c(2, 3), c(3, 4), c(4, 1), c(2, 4), c(5, 6), c(6, 7), c(7, 8), c(8, 5), c(4, 5))
  nb <- lapply(1:8, function(i) sort(as.integer(c(pairs[pairs[, 1] == i, 2], pairs[pairs[, 2] == i, 1]))))
  class(nb) <- "nb"
  attr(nb, "region.id") <- as.character(1:8)
  z <- d$age[1:8]
  say("moran", "spdep", unname(moran.test(z, nb2listw(nb, style = "B"))$estimate[1]), "style = B: pairs count alike")
  say("moran", "spdep", unname(moran.test(z, nb2listw(nb))$estimate[1]), "style = W: rows of weights sum to 1")
  say("moran-sd", "spdep", unname(sqrt(moran.test(z, nb2listw(nb, style = "B"), randomisation = FALSE)$estimate[3])), "normality")
  say("moran-sd", "spdep", unname(sqrt(moran.test(z, nb2listw(nb, style = "B"))$estimate[3])), "randomisation")
})
