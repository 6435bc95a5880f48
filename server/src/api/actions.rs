//! API calls that start, watch and stop long operations of this process. Tests: `tests/serve/api/many.rs`.

use oncebox::operate::{OperationReport, OperationState};
use oncebox::store::OperationId;

use super::problem::{ApiProblem, ApiResult, ProblemKind};
use super::request::ApiRequest;
use crate::operator::wire::{self, OperationUuid};
use crate::operator::{LongOperation, show};

/// Starts or continues a bulk operation.
pub(super) async fn bulk(request: &ApiRequest) -> ApiResult<wire::BulkReport> {
    let operation = request.client()?.plan_bulk(&request.body()?).await?;
    start(request, operation).await
}

/// Starts or continues a backfill of a configured handler.
pub(super) async fn backfill(request: &ApiRequest) -> ApiResult<wire::BulkReport> {
    let action: wire::BackfillAction = request.body()?;
    let operation = request.client()?.plan_backfill(&action.into())?;
    start(request, operation).await
}

/// Records an operation before the response, then runs it in the background.
async fn start(request: &ApiRequest, operation: LongOperation) -> ApiResult<wire::BulkReport> {
    let (client, id) = (request.client()?, operation.id());
    client.begin(&operation).await?;
    request.api.jobs.start(id, async move {
        let report = client.finish(&operation, &mut |_| {}).await?;
        let wire::BulkReport { state, done, failed, .. } = &report;
        tracing::info!(operation = %id, state, done, failed, "operation ended");
        Ok(())
    });
    // If the store fails now, it is running: a client that saw an error would start the operation again under another id.
    let stored = progress_of(request, id).await.ok().and_then(|progress| progress.report);
    Ok(stored.unwrap_or_else(|| wire::BulkReport {
        operation: OperationUuid(id),
        state: OperationState::Running.as_str().into(),
        active: request.api.jobs.is_active(id),
        done: 0,
        refused: 0,
        failed: 0,
    }))
}

async fn progress_of(request: &ApiRequest, id: OperationId) -> ApiResult<wire::OperationProgress> {
    // Before the record: an operation that ends meanwhile must not look interrupted.
    let active = request.api.jobs.is_active(id);
    let unknown = || ApiProblem::new(ProblemKind::NotFound, format!("there is no operation {id}"));
    let record = request.client()?.record(id).await?.ok_or_else(unknown)?;
    let report = OperationReport::of(&record)?;
    let report = report.map(|report| wire::BulkReport { active, ..show::report(&report) });
    Ok(wire::OperationProgress { operation: show::operation(&record), report })
}

/// Returns the record and progress of an operation.
pub(super) async fn progress(request: &ApiRequest) -> ApiResult<wire::OperationProgress> {
    progress_of(request, request.operation()?.0).await
}

/// Stops an operation that runs in this process.
pub(super) async fn stop(request: &ApiRequest) -> ApiResult<wire::OperationProgress> {
    let OperationUuid(id) = request.operation()?;
    progress_of(request, id).await?;
    if request.api.jobs.stop(id) {
        let by = request.caller.name.as_deref().unwrap_or("this machine");
        tracing::info!(operation = %id, by, "operation stopped");
    }
    progress_of(request, id).await
}
